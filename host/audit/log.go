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

// Bounds of a log.
const (
	maxQueued = 4096 // lines that wait to be written, of at most maxLine bytes
	maxBatch  = 256  // lines of one write
	// patience is how long a change waits until its line is on disk.
	patience = 5 * time.Second
	// reopenAfter is how soon a log that could not be written is tried again for
	// lines that nobody waits for.
	reopenAfter = time.Second
)

// Options of a Log.
type Options struct {
	// Path is the newest file. Those before it are Path.1 to Path.Keep, the
	// oldest last.
	Path string
	// Node is the name of the node in every line.
	Node string
	// MaxBytes is the size from which on a file is rotated (100 MB), Keep the
	// number of those that stay beside it (10).
	MaxBytes int64
	Keep     int
	// Signer signs checkpoints; nil: there are none.
	Signer *Signer
	// Now is the clock of the lines; nil is time.Now.
	Now func() time.Time
	// Logger gets what operators should see; nil discards it.
	Logger *slog.Logger
	// Registerer gets the metrics; nil drops them.
	Registerer prometheus.Registerer
}

// ErrFull: more lines wait than the log writes.
var ErrFull = errors.New("too many lines wait to be written")

// errClosed: Run has ended.
var errClosed = errors.New("the log is closed")

// Log writes lines. It is safe for concurrent use.
type Log struct {
	opts    Options
	metrics *metrics
	queue   chan *queued
	closed  chan struct{} // when Run has ended
	calls   atomic.Uint64
	start   string        // prefix of this start's calls
	lost    atomic.Uint64 // lines without a place in the queue, since the last line

	// Of Run.
	file   *file // nil: to be opened
	failed time.Time
	told   bool      // of a failure, since the last success
	signed time.Time // the newest checkpoint of this start
	bare   bool      // lines came after it
}

// queued is a line that waits. written is nil where nobody waits for it.
type queued struct {
	line       line
	written    chan<- error
	checkpoint bool // to be signed when its place is known
}

// Open makes a log and opens its file. Run must be called then.
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

// Call makes the name of a call that this log has not seen.
func (l *Log) Call() string { return fmt.Sprintf("%s-%d", l.start, l.calls.Add(1)) }

// Add has an entry written. It does not wait; where too many do, the entry is
// lost, and the next line says so.
func (l *Log) Add(e Entry) {
	if !l.enqueue(e, nil) {
		l.lose(1)
	}
}

// Write returns once an entry is on disk. Its errors say why it is not, or may
// not be: ctx ended, or the disk did not answer within patience.
func (l *Log) Write(ctx context.Context, e Entry) error {
	written := make(chan error, 1)
	if !l.enqueue(e, written) {
		return ErrFull
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case err := <-written:
		return err
	case <-l.closed:
		return errClosed
	case <-ctx.Done():
		return fmt.Errorf("the line was not on disk in time: %w", ctx.Err())
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

// Run writes what is added until ctx ends, and then what was added before.
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
			l.sign(CheckpointEvery)
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

// sign writes a checkpoint where there are lines behind the one before, which
// is that old. The first of a start signs whatever the file holds.
func (l *Log) sign(age time.Duration) {
	if l.opts.Signer != nil && (l.bare || l.signed.IsZero()) && l.opts.Now().Sub(l.signed) >= age {
		l.write([]*queued{l.checkpoint()})
	}
}

func (l *Log) checkpoint() *queued {
	return &queued{line: line{Time: l.opts.Now().UTC(), Node: l.opts.Node, Entry: Entry{Stage: StageCheckpoint}}, checkpoint: true}
}

// batch takes what else waits.
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

// write writes a batch, and tells those that wait.
func (l *Log) write(batch []*queued) {
	if l.opts.Signer != nil && !batch[0].checkpoint && l.opts.Now().Sub(l.signed) >= CheckpointEvery {
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
		if batch[0].checkpoint { // which is made again
			batch = batch[1:]
		}
		l.lose(len(batch))
		l.fail(err)
	} else {
		l.metrics.lines.Add(float64(len(batch)))
		l.told = false
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

// fail closes the file, so that the next batch finds out where it ends.
func (l *Log) fail(err error) {
	l.metrics.failures.Inc()
	l.close()
	l.failed = l.opts.Now()
	if !l.told {
		l.told = true
		l.opts.Logger.Error("the audit log cannot be written", "file", l.opts.Path, "error", err)
	}
}

func (l *Log) close() {
	if l.file != nil {
		_ = l.file.f.Close() // what must be on disk was synced
		l.file = nil
	}
}

// errWaiting: the log failed a moment ago.
var errWaiting = errors.New("the log could not be written a moment ago")

// append writes lines in one piece, and syncs them where somebody waits.
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

// render chains a batch to the file's last line.
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

// render chains a line to the one before.
func (q *queued) render(prev string, torn bool, lost uint64, signer *Signer) ([]byte, error) {
	q.line.Prev, q.line.Torn, q.line.Lost = prev, torn, lost
	if q.checkpoint {
		signer.sign(&q.line)
	}
	return q.line.render()
}

// rotate begins a new file. The chain goes on in it.
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
