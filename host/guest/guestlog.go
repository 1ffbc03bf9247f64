package guest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi"
)

// guestLog passes a guest's lines to the host's log, with limits on the lines
// of a call and the bytes of a line. Guest text is hostile, so it is only ever
// logged as the value of an attribute.
type guestLog struct {
	logger    *slog.Logger
	lineLimit int // maximum lines of one call
	byteLimit int // maximum bytes of one line
	rate      *logRate
	hear      func(abi.LogLevel, []byte)     // InstanceOptions.Lines
	about     func() (entityType, id string) // InstanceOptions.About

	lines   int // lines logged in this call
	dropped int // lines dropped in this call
	// partial is an unfinished line of standard output or error. At the end of
	// the call it is logged as a line.
	partial []byte
}

// line logs text as one line. text is not kept.
func (l *guestLog) line(level abi.LogLevel, text []byte) {
	if l.lines >= l.lineLimit {
		l.dropped++
		return
	}
	l.lines++
	to := slogLevel(level)
	text = text[:min(len(text), l.byteLimit)]
	if l.hear != nil {
		l.hear(level, text)
	}
	if !l.logger.Enabled(context.Background(), to) {
		return
	}
	entity, length := l.entity()
	if !l.rate.take(time.Now(), len(text)+length) {
		return
	}
	l.logger.LogAttrs(context.Background(), to, "guest log", append(entity, slog.String("line", strings.ToValidUTF8(string(text), "?")))...)
}

// entity returns log attributes that name the called entity, and the length of
// the names, which counts against the rate limit.
func (l *guestLog) entity() (attributes []slog.Attr, length int) {
	if l.about == nil {
		return nil, 0
	}
	entityType, id := l.about()
	if entityType != "" {
		attributes = append(attributes, slog.String("entity_type", entityType))
	}
	if id != "" {
		attributes = append(attributes, slog.String("entity_id", strings.ToValidUTF8(id, "?")))
	}
	return attributes, len(entityType) + len(id)
}

func slogLevel(level abi.LogLevel) slog.Level {
	switch {
	case level <= abi.LogDebug:
		return slog.LevelDebug
	case level == abi.LogInfo:
		return slog.LevelInfo
	case level == abi.LogWarn:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// write splits bytes of standard output or error into lines and logs them.
func (l *guestLog) write(data []byte) {
	for len(data) > 0 {
		if l.lines >= l.lineLimit {
			l.dropped += bytes.Count(data, []byte{'\n'})
			return
		}
		head, rest, ended := bytes.Cut(data, []byte{'\n'})
		l.partial = append(l.partial, head[:min(len(head), l.byteLimit-len(l.partial))]...)
		if ended {
			l.endLine()
		}
		data = rest
	}
}

func (l *guestLog) endLine() {
	if len(l.partial) > 0 {
		l.line(abi.LogInfo, l.partial)
	}
	l.partial = l.partial[:0]
}

// end logs the unfinished line and the number of dropped lines of a call, and
// resets the counters.
func (l *guestLog) end() {
	if len(l.partial) > 0 {
		l.endLine()
	}
	if l.dropped > 0 && l.hear != nil {
		l.hear(abi.LogWarn, fmt.Appendf(nil, "dropped %d more lines of this call", l.dropped))
	}
	if l.dropped > 0 {
		if entity, length := l.entity(); l.rate.take(time.Now(), length) {
			l.logger.LogAttrs(context.Background(), slog.LevelWarn, "dropped guest log lines", append(entity, slog.Int("dropped", l.dropped), slog.Int("limit", l.lineLimit))...)
		}
	}
	l.lines, l.dropped = 0, 0
}

const (
	// logBytesPerSecond is how many bytes the guests of a module may log in a
	// second, and logBurst is the maximum they may save up, in bytes. logLineBytes
	// is the overhead charged for each line.
	logBytesPerSecond = 64 << 10
	logBurst          = 256 << 10
	logLineBytes      = 128
)

// logRate limits the log of a module's guests on this node. It is safe for
// concurrent use; a nil logRate does not limit anything.
type logRate struct {
	free    atomic.Int64   // time when all logged bytes are paid for, unix nanoseconds
	dropped *atomic.Uint64 // dropped lines of all modules
}

// take charges a line of n bytes and returns true, or counts the line as
// dropped.
func (r *logRate) take(now time.Time, n int) bool {
	if r == nil {
		return true
	}
	const perByte = int64(time.Second) / logBytesPerSecond
	cost := int64(n+logLineBytes) * perByte
	for {
		free := r.free.Load()
		from := max(free, now.UnixNano())
		if from > now.UnixNano()+2*logBurst*perByte {
			from = now.UnixNano() // the clock was set back
		}
		if from+cost > now.UnixNano()+logBurst*perByte {
			r.dropped.Add(1)
			return false
		}
		if r.free.CompareAndSwap(free, from+cost) {
			return true
		}
	}
}

// LogDropped returns the number of guest lines that were dropped because their
// module exceeded its log rate.
func (e *Engine) LogDropped() uint64 { return e.logDropped.Load() }
