package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Intervals of a Reloader.
const (
	pollEvery = time.Minute
	// settleFor is the delay between a change in a directory and reading the
	// files, because a chain and its key are two files.
	settleFor = 100 * time.Millisecond
	// warnBefore is how long before the expiry of a certificate warnings start.
	// They are repeated every warnEvery.
	warnBefore = 14 * 24 * time.Hour
	warnEvery  = 24 * time.Hour
)

// Options configures a Reloader.
type Options struct {
	Files Files
	// ClientAuth is the policy for clients' certificates. Anything but
	// tls.NoClientCert needs Files.ClientCA.
	ClientAuth tls.ClientAuthType
	Logger     *slog.Logger
	// Registerer registers the metrics; nil means none.
	Registerer prometheus.Registerer
	// Now is the clock for the expiry of certificates; nil means time.Now.
	Now func() time.Time
	// Watch watches directories; nil means fsnotify. If it fails, the files are
	// still read once a minute.
	Watch func(dirs []string) (Watch, error)
}

// Watch reports changes in directories.
type Watch interface {
	// Changes receives a value after one or more changes.
	Changes() <-chan struct{}
	// Renew watches directories again that were removed and created again.
	Renew()
	// Close stops watching and waits for its goroutines.
	Close() error
}

// role is the purpose of a Reloader's certificates.
type role struct {
	own, authorities string // labels of the metrics
	revoked          string // label of the metrics
	protocols        []string
	verify           verifier
	fits             func(*material) error // checks the own certificate; nil: any is valid
}

// Reloader holds the certificates of a listener. It is safe for concurrent use.
type Reloader struct {
	opts    Options
	role    role
	current atomic.Pointer[state]
	metrics metrics

	mu     sync.Mutex // guards reading of the files, and warned
	warned map[string]time.Time

	open connections
}

// state is the material in use and the TLS configuration made from it.
type state struct {
	*material
	config *tls.Config
}

// Open reads the files and returns an error if they cannot be used. An expired
// own certificate is only a warning, because a node that doesn't start serves
// nobody.
func Open(o Options) (*Reloader, error) {
	return openAs(role{own: "server", authorities: "client-ca", protocols: []string{"h2", "http/1.1"}, verify: ofClients}, o)
}

func openAs(role role, o Options) (*Reloader, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Watch == nil {
		o.Watch = watchDirs
	}
	if o.ClientAuth != tls.NoClientCert && o.Files.ClientCA == "" {
		return nil, errors.New("tls-client-auth needs tls-client-ca-file to verify client certificates")
	}
	m, err := role.read(o.Files)
	if err == nil {
		err = m.revoked.check(o.Files.CRL, o.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	r := &Reloader{opts: o, role: role, warned: map[string]time.Time{}}
	r.open.init()
	r.metrics = newMetrics(o.Registerer)
	r.metrics.failures.WithLabelValues(role.own)
	r.use(m)
	r.warn()
	return r, nil
}

// read reads the files and checks the own certificate.
func (r role) read(f Files) (*material, error) {
	m, err := read(f)
	if err == nil && r.fits != nil {
		if err = r.fits(m); err != nil {
			err = fmt.Errorf("%s: %w", f.Cert, err)
		}
	}
	return m, err
}

// use makes new handshakes use m.
func (r *Reloader) use(m *material) {
	r.current.Store(&state{m, &tls.Config{
		Certificates: []tls.Certificate{m.pair},
		ClientAuth:   r.opts.ClientAuth,
		ClientCAs:    m.pool,
		MinVersion:   tls.VersionTLS13,
		NextProtos:   r.role.protocols,
		Time:         r.opts.Now,
		// A session ticket would let a client in although its authority is no
		// longer trusted. Handshakes are rare anyway, because connections are
		// long-lived.
		SessionTicketsDisabled: true,
	}})
	for use, end := range r.ends() {
		r.metrics.ends.WithLabelValues(use).Set(float64(end.Unix()))
	}
}

// Config returns the configuration for the server side. Each handshake uses the
// latest certificates.
func (r *Reloader) Config() *tls.Config {
	c := r.current.Load().config.Clone()
	c.GetConfigForClient = r.configFor
	return c
}

// configFor implements tls.Config.GetConfigForClient.
func (r *Reloader) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	s := r.current.Load()
	if s.pool == nil {
		return s.config, nil
	}
	c := s.config.Clone()
	c.VerifyConnection = func(shown tls.ConnectionState) error {
		return r.storeVerified(hello.Conn, shown.PeerCertificates)
	}
	return c, nil
}

// Reload reads the files. If they cannot be used, the current ones stay in use
// and the error is logged, counted and returned. Connections with a revoked
// certificate are closed at once; connections with an authority that is no
// longer trusted are closed after Grace.
func (r *Reloader) Reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.warn()
	had := r.current.Load()
	m, err := r.role.read(r.opts.Files)
	if err == nil && m.pairSum != had.pairSum && m.pair.Leaf.NotAfter.Before(r.opts.Now()) {
		err = fmt.Errorf("%s: expired at %s", r.opts.Files.Cert, m.pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if err == nil && m.revoked.sum != had.revoked.sum {
		err = m.revoked.check(r.opts.Files.CRL, r.opts.Now())
	}
	if err != nil {
		r.metrics.failures.WithLabelValues(r.role.own).Inc()
		r.opts.Logger.Error("cannot reload certificates; the previous ones stay in use", "use", r.role.own, "error", err)
		return fmt.Errorf("read certificates: %w", err)
	}
	if m.pairSum == had.pairSum && m.poolSum == had.poolSum && m.revoked.sum == had.revoked.sum {
		return nil
	}
	r.use(m)
	retired, closed := 0, 0
	if m.revoked.sum != had.revoked.sum {
		closed = r.open.closeAll(func(e *connection) bool { return m.revoked.has(e.chain) })
	}
	if m.poolSum != had.poolSum {
		retired = r.open.retire(func(e *connection) bool { return r.role.verify(m, e.chain, r.opts.Now()) != nil }, time.Now())
	}
	r.opts.Logger.Info("reloaded certificates", "use", r.role.own, "not_after", m.pair.Leaf.NotAfter, "authorities", len(m.authorities), "revoked", len(m.revoked.by), "connections_closing", retired, "connections_closed", closed)
	return nil
}

// Run reads the files again after a change in their directories, and once a
// minute, until ctx ends. It also closes connections whose grace period is
// over.
func (r *Reloader) Run(ctx context.Context) {
	watch, err := r.opts.Watch(r.opts.Files.dirs())
	if err != nil {
		r.opts.Logger.Warn("cannot watch certificate files; checking them once a minute", "use", r.role.own, "error", err)
		watch = unwatched{}
	}
	defer watch.Close()
	poll, sweep := time.NewTicker(pollEvery), time.NewTicker(sweepEvery)
	defer poll.Stop()
	defer sweep.Stop()
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-watch.Changes():
			if settled == nil {
				settled = time.After(settleFor)
			}
			continue
		case now := <-sweep.C:
			r.open.closeRetired(now)
			continue
		case <-settled:
			settled = nil
		case <-poll.C:
		}
		watch.Renew()
		_ = r.Reload() // Reload has logged the error
	}
}

// warn logs certificates that expire soon or have expired. Revocation lists are
// logged only after their end, because they are replaced often and stay in use.
func (r *Reloader) warn() {
	now := r.opts.Now()
	for use, end := range r.ends() {
		if end.Sub(now) > warnBefore || use == r.role.revoked && end.After(now) {
			delete(r.warned, use)
			continue
		}
		if last, ok := r.warned[use]; ok && now.Sub(last) < warnEvery {
			continue
		}
		r.warned[use] = now
		r.opts.Logger.Warn("a certificate or revocation list has expired or will expire soon", "use", use, "not_after", end)
	}
}

// ends returns the expiry of the certificates and lists in use, by metric
// label.
func (r *Reloader) ends() map[string]time.Time {
	s := r.current.Load()
	out := map[string]time.Time{r.role.own: s.pair.Leaf.NotAfter}
	if s.pool != nil {
		out[r.role.authorities] = s.authorityEnd()
	}
	if end, ends := s.revoked.end(); ends {
		out[r.role.revoked] = end
	}
	return out
}
