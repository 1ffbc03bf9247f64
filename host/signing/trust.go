package signing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/files"
)

// Mode says what a node makes of signatures.
type Mode string

// The modes.
const (
	Off     Mode = "off"     // they are kept, and change nothing
	Warn    Mode = "warn"    // a module whose signature does not count is told of
	Require Mode = "require" // and neither taken nor served
)

// Options of a Trust.
type Options struct {
	Mode Mode
	// File has the keys that the node trusts; empty: it trusts none.
	File       string
	Logger     *slog.Logger          // required
	Registerer prometheus.Registerer // gets the metrics; nil drops them
}

// Trust is whose signatures count on a node. It is safe for concurrent use.
type Trust struct {
	opts     Options
	failures prometheus.Counter
	file     *files.Watched // nil: none
	keys     atomic.Pointer[Keys]
	reload   chan struct{} // one slot
	mu       sync.Mutex    // guards changed
	changed  chan struct{} // closed and made anew with each change of keys
}

// Open reads the file, and fails where it is wrong.
func Open(o Options) (*Trust, error) {
	t := &Trust{opts: o, reload: make(chan struct{}, 1), changed: make(chan struct{})}
	t.failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hostd_module_trust_reload_failures_total", Help: "Attempts to read module-trust-file again that failed; the keys read before count on.",
	})
	if o.Registerer != nil {
		o.Registerer.MustRegister(t.failures)
	}
	t.keys.Store(&Keys{})
	if o.File == "" {
		return t, nil
	}
	t.file = &files.Watched{What: "module-trust-file", Path: o.File, Most: maxFileBytes, Parse: func(text []byte) error {
		keys, err := ParseKeys(text)
		if err == nil {
			t.keys.Store(keys)
		}
		return err
	}}
	_, err := t.file.Read()
	return t, err
}

// Mode is what the node makes of signatures.
func (t *Trust) Mode() Mode { return t.opts.Mode }

// Keys are the keys that the node trusts now. The result is another one after
// each change, and the same one until then.
func (t *Trust) Keys() *Keys { return t.keys.Load() }

// Judge returns the name of the key that has signed a module, or an *Error.
func (t *Trust) Judge(s Statement, signature []byte) (by string, err error) {
	return t.Keys().Judge(s, signature)
}

// Changed returns a channel that is closed when the keys are others.
func (t *Trust) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Reload has Run read the file again, whether or not it looks changed.
func (t *Trust) Reload() {
	select {
	case t.reload <- struct{}{}:
	default:
	}
}

// How often Run looks at the file: whether it has changed, and at its text.
const (
	lookEvery = time.Second
	readEvery = 30
)

// Run keeps the keys up to the file until ctx ends.
func (t *Trust) Run(ctx context.Context) {
	if t.file == nil {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ticks := 1; ; ticks++ {
		all := ticks%readEvery == 0
		select {
		case <-tick.C:
		case <-t.reload:
			all = true
		case <-ctx.Done():
			return
		}
		if all || t.file.Moved() {
			t.read()
		}
	}
}

// read reads the file. One that cannot be read or is wrong leaves the keys that
// were known before; the log tells of it once.
func (t *Trust) read() {
	changed, err := t.file.Read()
	if err != nil {
		t.failures.Inc()
		if t.file.News(err) {
			t.opts.Logger.Error("the file of trusted keys cannot be read again, those that it held before count on", "file", t.file.Path, "error", err)
		}
		return
	}
	if !changed {
		return
	}
	t.opts.Logger.Info("read the file of trusted keys again", "file", t.file.Path)
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.changed)
	t.changed = make(chan struct{})
}
