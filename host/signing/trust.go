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

// Mode is how a node handles signatures.
type Mode string

// The modes.
const (
	Off     Mode = "off"     // signatures are stored but not checked
	Warn    Mode = "warn"    // modules with untrusted signatures are logged
	Require Mode = "require" // modules with untrusted signatures are neither accepted nor served
)

// Options configure a Trust.
type Options struct {
	Mode Mode
	// File contains the keys that the node trusts. If it is empty, the node trusts
	// no key.
	File       string
	Logger     *slog.Logger          // required
	Registerer prometheus.Registerer // receives the metrics; nil discards them
}

// Trust holds the keys that a node trusts. It is safe for concurrent use.
type Trust struct {
	opts     Options
	failures prometheus.Counter
	file     *files.Watched // nil without a file
	keys     atomic.Pointer[Keys]
	reload   chan struct{} // one slot
	mu       sync.Mutex    // guards changed
	changed  chan struct{} // closed and replaced whenever the keys change
}

// Open reads the file. It returns an error if the file is invalid.
func Open(o Options) (*Trust, error) {
	t := &Trust{opts: o, reload: make(chan struct{}, 1), changed: make(chan struct{})}
	t.failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hostd_module_trust_reload_failures_total", Help: "Failed reloads of module-trust-file; the previous keys stay in effect.",
	})
	if o.Registerer != nil {
		o.Registerer.MustRegister(t.failures)
	}
	t.keys.Store(&Keys{})
	if o.File == "" {
		return t, nil
	}
	t.file = &files.Watched{What: "module-trust-file", Path: o.File, Most: maxFileBytes, Parse: func(text []byte) error {
		keys, err := parseKeys(text)
		if err == nil {
			t.keys.Store(keys)
		}
		return err
	}}
	_, err := t.file.Read()
	return t, err
}

// Mode returns how the node handles signatures.
func (t *Trust) Mode() Mode { return t.opts.Mode }

// Keys returns the currently trusted keys. The pointer changes exactly when the
// keys change.
func (t *Trust) Keys() *Keys { return t.keys.Load() }

// Judge returns the name of the key that has signed a module, or an *Error.
func (t *Trust) Judge(s Statement, signature []byte) (by string, err error) {
	return t.Keys().Judge(s, signature)
}

// Changed returns a channel that is closed when the keys change.
func (t *Trust) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Reload makes Run read the file again, even if it does not look changed.
func (t *Trust) Reload() {
	select {
	case t.reload <- struct{}{}:
	default:
	}
}

// Run checks every lookEvery whether the file has changed, and reads its
// content every readEvery checks.
const (
	lookEvery = time.Second
	readEvery = 30
)

// Run keeps the keys in sync with the file until ctx ends.
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
		if all || t.file.HasChanged() {
			t.read()
		}
	}
}

// read reads the file. If it cannot be read or is invalid, the previous keys
// stay in place, and the error is logged once.
func (t *Trust) read() {
	changed, err := t.file.Read()
	if err != nil {
		t.failures.Inc()
		if t.file.News(err) {
			t.opts.Logger.Error("cannot reload module-trust-file; the previous keys stay in effect", "file", t.file.Path, "error", err)
		}
		return
	}
	if !changed {
		return
	}
	t.opts.Logger.Info("reloaded module-trust-file", "file", t.file.Path)
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.changed)
	t.changed = make(chan struct{})
}
