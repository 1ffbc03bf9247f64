package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Limits of a log.
const (
	maxQueued = 4096 // lines waiting to be written, each of at most maxLine bytes
	maxBatch  = 256  // lines in one write
	// patience bounds how long a change waits for its line to be synced.
	patience = 5 * time.Second
	// reopenAfter is the pause after a failed write before the log tries again
	// for lines that no caller waits for.
	reopenAfter = time.Second
)

// Options configures a Log.
type Options struct {
	// Path is the newest file. The rotated files are Path.1 to Path.Keep,
	// newest first.
	Path string
	// Node is the node name in every line.
	Node string
	// MaxBytes is the size above which a file is rotated, default 100 MiB. Keep
	// is the number of rotated files to keep, default 10.
	MaxBytes int64
	Keep     int
	// Signer signs checkpoints. If it is nil, there are no checkpoints.
	Signer *Signer
	// Now is the clock for the lines; nil means time.Now.
	Now func() time.Time
	// Logger receives errors for operators; nil discards them.
	Logger *slog.Logger
	// Registerer registers the metrics; nil means none.
	Registerer prometheus.Registerer
}

// errFull means that the queue of lines is full.
var errFull = errors.New("too many audit records wait to be written")

// errClosed means that Run has returned.
var errClosed = errors.New("the audit log is closed")

// Log is an open audit log. It is safe for concurrent use.
type Log struct {
	opts    Options
	metrics *metrics
	queue   chan *queued
	closed  chan struct{} // closed when Run returns
	calls   atomic.Uint64
	start   string        // prefix of the call names of this process
	lost    atomic.Uint64 // lines dropped because the queue was full, since the last written line

	// The following fields belong to Run.
	file          *file // nil: has to be opened again
	failed        time.Time
	failureLogged bool      // a failure was logged since the last success
	signed        time.Time // time of the newest checkpoint of this process
	bare          bool      // lines were written since the newest checkpoint
}

// queued is a line in the queue. written is nil if no caller waits for the
// line.
type queued struct {
	line       line
	written    chan<- error
	checkpoint bool // sign the line when its place in the chain is known
}

// Open creates a log and opens its file. The caller must then call Run.
func Open(o Options) (*Log, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = 100 << 20
	}
	if o.Keep == 0 {
		o.Keep = 10
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		opts:  o,
		queue: make(chan *queued, maxQueued), closed: make(chan struct{}), start: fmt.Sprintf("%x", o.Now().UnixNano()),
	}
	var err error
	if l.file, err = openFile(o.Path); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	l.metrics = newMetrics(o.Registerer)
	return l, nil
}

// Call returns a new name for a call, unique in this log.
func (l *Log) Call() string { return fmt.Sprintf("%s-%d", l.start, l.calls.Add(1)) }

// Add queues an entry and does not block. If the queue is full, the entry is
// lost, and the next line contains the number of lost lines.
func (l *Log) Add(e Entry) {
	if !l.enqueue(e, nil) {
		l.lose(1)
	}
}

// Write returns nil once an entry is synced to disk. If it returns an error,
// the entry may still be written: for example ctx ended, or the disk did not
// respond within patience.
func (l *Log) Write(ctx context.Context, e Entry) error {
	written := make(chan error, 1)
	if !l.enqueue(e, written) {
		return errFull
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case err := <-written:
		return err
	case <-l.closed:
		return errClosed
	case <-ctx.Done():
		return fmt.Errorf("the audit record was not on disk in time: %w", ctx.Err())
	}
}

func (l *Log) enqueue(e Entry, written chan<- error) bool {
	e.cut()
	select {
	case l.queue <- &queued{line: line{Time: l.opts.Now().UTC(), Node: l.opts.Node, Entry: e}, written: written}:
		return true
	default:
		return false
	}
}

func (l *Log) lose(n int) {
	l.lost.Add(uint64(n))
	l.metrics.lost.Add(float64(n))
}

// Run writes queued lines until ctx ends, then the rest of the queue.
func (l *Log) Run(ctx context.Context) {
	defer close(l.closed)
	defer l.close()
	defer l.sign(0)
	l.sign(0)
	look := time.NewTicker(checkpointSlack)
	defer look.Stop()
	for {
		select {
		case q := <-l.queue:
			l.write(l.batch(q))
		case <-look.C:
			l.sign(checkpointEvery)
		case <-ctx.Done():
			for {
				select {
				case q := <-l.queue:
					l.write(l.batch(q))
					continue
				default:
				}
				return
			}
		}
	}
}

// sign writes a checkpoint if lines were written since the previous checkpoint
// and that checkpoint is at least age old. The first checkpoint of a process
// is always written, and signs all lines that the file contains.
func (l *Log) sign(age time.Duration) {
	if l.opts.Signer != nil && (l.bare || l.signed.IsZero()) && l.opts.Now().Sub(l.signed) >= age {
		l.write([]*queued{l.checkpoint()})
	}
}

func (l *Log) checkpoint() *queued {
	return &queued{line: line{Time: l.opts.Now().UTC(), Node: l.opts.Node, Entry: Entry{Stage: stageCheckpoint}}, checkpoint: true}
}

// batch returns first with further lines from the queue, up to maxBatch.
func (l *Log) batch(first *queued) []*queued {
	all := []*queued{first}
	for len(all) < maxBatch {
		select {
		case q := <-l.queue:
			all = append(all, q)
		default:
			return all
		}
	}
	return all
}

// write writes a batch and reports the result to the waiting callers.
func (l *Log) write(batch []*queued) {
	if l.opts.Signer != nil && !batch[0].checkpoint && l.opts.Now().Sub(l.signed) >= checkpointEvery {
		batch = append([]*queued{l.checkpoint()}, batch...)
	}
	awaited := 0
	for _, q := range batch {
		if q.written != nil || q.checkpoint {
			awaited++
		}
	}
	err := l.append(batch, awaited > 0)
	if err != nil {
		if batch[0].checkpoint { // a checkpoint is not lost, because it will be made again
			batch = batch[1:]
		}
		l.lose(len(batch))
		l.fail(err)
	} else {
		l.metrics.lines.Add(float64(len(batch)))
		l.failureLogged = false
		if batch[0].checkpoint {
			l.signed, l.bare = batch[0].line.Time, false
		}
		l.bare = l.bare || len(batch) > 1 || !batch[0].checkpoint
	}
	for _, q := range batch {
		if q.written != nil {
			q.written <- err
		}
	}
}

// fail closes the file, so that the next batch opens it and finds its end
// again.
func (l *Log) fail(err error) {
	l.metrics.failures.Inc()
	l.close()
	l.failed = l.opts.Now()
	if !l.failureLogged {
		l.failureLogged = true
		l.opts.Logger.Error("cannot write the audit log", "file", l.opts.Path, "error", err)
	}
}

func (l *Log) close() {
	if l.file != nil {
		_ = l.file.f.Close() // all lines that callers waited for were synced
		l.file = nil
	}
}

// errWaiting means that the last write failed less than reopenAfter ago.
var errWaiting = errors.New("the last write of the audit log failed")

// append writes a batch with one write. If sync is set, it syncs the file.
func (l *Log) append(batch []*queued, sync bool) error {
	if l.file == nil {
		if since := l.opts.Now().Sub(l.failed); !sync && since >= 0 && since < reopenAfter {
			return errWaiting
		}
		f, err := openFile(l.opts.Path)
		if err != nil {
			return err
		}
		l.file = f
	}
	lost := l.lost.Swap(0)
	text, err := l.render(batch, lost)
	if err == nil && l.file.size > 0 && l.file.size+int64(len(text)) > l.opts.MaxBytes {
		if err = l.rotate(); err == nil {
			text, err = l.render(batch, lost)
		}
	}
	if err == nil {
		var n int
		n, err = l.file.f.Write(text)
		l.file.size += int64(n)
	}
	if err == nil && sync {
		err = l.file.f.Sync()
	}
	if err != nil {
		l.lost.Add(lost)
		return err
	}
	l.file.prev, l.file.torn = hashOf(text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:len(text)-1]), false
	return nil
}

// render encodes a batch and chains it to the last line of the file.
func (l *Log) render(batch []*queued, lost uint64) ([]byte, error) {
	var out []byte
	prev, torn := l.file.prev, l.file.torn
	for _, q := range batch {
		text, err := q.render(prev, torn, lost, l.opts.Signer)
		if err != nil {
			return nil, err
		}
		out = append(out, text...)
		prev, torn, lost = hashOf(text[:len(text)-1]), false, 0
	}
	return out, nil
}

// render encodes a line and chains it to the previous line.
func (q *queued) render(prev string, torn bool, lost uint64, signer *Signer) ([]byte, error) {
	q.line.Prev, q.line.Torn, q.line.Lost = prev, torn, lost
	if q.checkpoint {
		signer.sign(&q.line)
	}
	return q.line.render()
}

// rotate starts a new file, which continues the chain.
func (l *Log) rotate() error {
	prev, torn := l.file.prev, l.file.torn
	if err := l.file.f.Sync(); err != nil {
		return err
	}
	l.close()
	if err := rotate(l.opts.Path, l.opts.Keep); err != nil {
		return err
	}
	f, err := openFile(l.opts.Path)
	if err != nil {
		return err
	}
	l.file = f
	f.prev, f.torn = prev, torn
	return nil
}
