package authn

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/files"
	"github.com/hostd/hostd/sharding/access"
)

// Options say whom a node lets in.
type Options struct {
	// Anonymous lets callers in that have no credential. A wrong one is refused
	// all the same.
	Anonymous bool
	// TokenFile holds the hashes of static tokens; empty is none.
	TokenFile string
	// Known reports that the node has caught up with the tokens that the cluster
	// keeps. A token that nobody knows may be one of those before. Nil: it has.
	Known func() bool
	// CertName has the certificates of clients be credentials, for requests that
	// have no Authorization header.
	CertName CertName
	// NodeCert reports whether a certificate is a node's, which is no client's.
	// Nil: none is.
	NodeCert func(*x509.Certificate) bool
	// JWT says whose tokens are taken; nil is nobody's.
	JWT *JWTOptions
	// Now is the clock that credentials expire by; nil is time.Now.
	Now func() time.Time
	// Refused is told of each request that is refused; it must not block. Nil is
	// told of none.
	Refused func(r *http.Request, reason string)
	// Logger gets what operators should see, and never a credential; nil
	// discards it.
	Logger *slog.Logger
	// Registerer gets the metrics; nil drops them.
	Registerer prometheus.Registerer
}

// Authenticator knows callers by their credentials. It is safe for concurrent
// use.
type Authenticator struct {
	opts     Options
	metrics  *metrics
	failures failures
	tokens   atomic.Pointer[tokenTable] // of the file
	kept     atomic.Pointer[tokenTable] // of the cluster
	jwt      *jwtVerifier               // nil: none

	reading sync.Mutex // of files
	files   []*files.Watched
	reload  chan struct{} // one slot
	streams openStreams

	renewing sync.Mutex
	revision uint64 // of kept
}

// New makes an authenticator. It reads the files, and fails where one is wrong;
// it asks nobody over the network.
func New(o Options) (*Authenticator, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Authenticator{opts: o, metrics: newMetrics(o.Registerer), reload: make(chan struct{}, 1)}
	a.tokens.Store(&tokenTable{})
	a.kept.Store(&tokenTable{})
	if o.TokenFile != "" {
		a.files = append(a.files, &files.Watched{What: "token-file", Path: o.TokenFile, Most: maxTokenFileBytes, Parse: func(text []byte) error {
			t, err := parseTokens(text)
			if err == nil {
				a.tokens.Store(t)
			}
			return err
		}})
	}
	if o.JWT != nil {
		a.jwt = newJWTVerifier(*o.JWT, o.Now, o.Logger)
		if path := o.JWT.KeysFile; path != "" {
			a.files = append(a.files, &files.Watched{What: "jwt-keys-file", Path: path, Most: maxKeysBytes, Parse: a.jwt.setKeys})
		}
	}
	var faults []error
	for _, f := range a.files {
		_, err := f.Read()
		faults = append(faults, err)
	}
	return a, errors.Join(faults...)
}

// Reload has Run read the files again, whether or not they look changed.
func (a *Authenticator) Reload() {
	select {
	case a.reload <- struct{}{}:
	default:
	}
}

// SetTokens has the tokens that the cluster keeps be taken, beside those of the
// file, and ends the streams of those that are gone. What is of no higher
// revision than before is passed over.
func (a *Authenticator) SetTokens(revision uint64, tokens []access.Token) {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	if revision <= a.revision {
		return
	}
	a.revision = revision
	before, now := a.kept.Load(), keptTokens(tokens)
	a.kept.Store(now)
	if slices.Equal(before.hashes, now.hashes) && slices.EqualFunc(before.principals, now.principals, func(x, y *Principal) bool { return x.Name == y.Name && x.Expires.Equal(y.Expires) }) {
		return
	}
	for _, s := range a.streams.list() {
		if s.principal.Kind == KindToken {
			a.recheck(context.Background(), s)
		}
	}
}

// InFile reports whether the token file has a token of the name.
func (a *Authenticator) InFile(name string) bool { return a.tokens.Load().has(name) }

// How often Run looks at what may change.
const (
	lookEvery    = time.Second      // at the files, and at the streams whose credential expires
	recheckEvery = 30 * time.Second // at the text of the files, and at every stream's credential
)

// Run keeps credentials and keys fresh and ends streams whose credential has
// ended, until ctx ends.
func (a *Authenticator) Run(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	if a.jwt != nil && a.jwt.opts.KeysFile == "" {
		tasks.Go(func() { a.refreshKeys(ctx) })
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	checked := a.opts.Now()
	for {
		all := false
		select {
		case <-tick.C:
		case <-a.reload:
			all = true
		case <-ctx.Done():
			return
		}
		if now := a.opts.Now(); now.Sub(checked) >= recheckEvery {
			all, checked = true, now
		}
		a.look(ctx, all)
	}
}

// look reads files that have changed, or all, and ends streams whose credential
// has expired or, where anything has changed or all is asked for, is not valid
// any more.
func (a *Authenticator) look(ctx context.Context, all bool) {
	changed := a.readFiles(all)
	for _, s := range a.streams.list() {
		switch {
		case s.expired(a.opts.Now()):
			a.end(s, failExpired)
		case s.principal.Kind == KindCertificate:
			// It stands as long as its connection does, whose owner holds it to the
			// authorities.
		case changed || all:
			a.recheck(ctx, s)
		}
	}
}

// recheck ends a stream whose credential is not valid any more, or another's.
func (a *Authenticator) recheck(ctx context.Context, s *session) {
	if p, fail := a.verify(ctx, s.credential, false); fail != nil && fail != failKeys || fail == nil && (p.Kind != s.principal.Kind || p.Name != s.principal.Name) {
		a.end(s, failRevoked)
	}
}

// Recheck refuses a request whose token is not valid any more, by the tokens
// that are known now.
func (a *Authenticator) Recheck(ctx context.Context) error {
	s, ok := ctx.Value(sessionKey{}).(*session)
	if !ok || s.principal.Kind != KindToken {
		return nil
	}
	p, fail := a.verify(ctx, s.credential, false)
	if fail == nil && p.Name != s.principal.Name {
		fail = failUnknown
	}
	if fail == nil {
		return nil
	}
	return connect.NewError(fail.code, fail.err)
}

// end ends a stream.
func (a *Authenticator) end(s *session, why *failure) {
	if s.end(why) {
		a.metrics.streams.Inc()
		a.opts.Logger.Info("ended a stream whose credential has ended", "kind", s.principal.Kind, "principal", s.principal.Name, "reason", why.reason)
	}
}

// readFiles reads the files that have moved, or all. A file that cannot be read
// or is wrong leaves what was known before; the log tells of it once. A change
// counts at the second look.
func (a *Authenticator) readFiles(all bool) (changed bool) {
	a.reading.Lock()
	defer a.reading.Unlock()
	for _, f := range a.files {
		if !all && !f.Moved() {
			continue
		}
		now, err := f.Read()
		switch {
		case err != nil:
			a.metrics.reloads.WithLabelValues(f.What).Inc()
			if f.News(err) {
				a.opts.Logger.Error("a file of credentials cannot be read again, what it held before counts on", "file", f.Path, "error", err)
			}
		case now:
			a.opts.Logger.Info("read a file of credentials again", "file", f.Path)
		}
		changed = changed || now
	}
	return changed
}

// session is who makes a request, and by what.
type session struct {
	principal  *Principal
	credential string

	// Of a stream, once it is entered.
	mu    sync.Mutex
	abort func() // nil once the stream has ended
	ended *failure
	w     http.ResponseWriter
}

func (s *session) expired(now time.Time) bool {
	return !s.principal.Expires.IsZero() && !now.Before(s.principal.Expires.Add(leewayOf(s.principal.Kind)))
}

// leewayOf is how long after its end a credential is taken.
func leewayOf(k Kind) time.Duration {
	if k == KindJWT {
		return jwtLeeway
	}
	return 0
}

// authenticate says who sends a request.
func (a *Authenticator) authenticate(r *http.Request) (p *Principal, credential string, fail *failure) {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		switch c := shown(r); {
		case c != nil && a.opts.CertName != CertNone:
			p, fail = a.certified(c)
			return p, "", fail
		case !a.opts.Anonymous:
			return nil, "", failMissing
		}
		return anonymous, "", nil
	}
	scheme, credential, ok := strings.Cut(header[0], " ")
	if len(header) != 1 || !ok || !strings.EqualFold(scheme, "Bearer") || credential == "" {
		return nil, "", failMalformed
	}
	p, fail = a.verify(r.Context(), credential, true)
	return p, credential, fail
}

// verify says whose a credential is. Only where fetch says so it waits for the
// keys of an issuer, no longer than fetchPatience.
func (a *Authenticator) verify(ctx context.Context, credential string, fetch bool) (*Principal, *failure) {
	switch {
	case strings.HasPrefix(credential, TokenPrefix):
		hash := sha256.Sum256([]byte(credential))
		p, kept := a.tokens.Load().find(hash), a.kept.Load().find(hash)
		if p == nil {
			p = kept
		}
		switch {
		case p == nil && a.opts.Known != nil && !a.opts.Known():
			return nil, failBehind
		case p == nil:
			return nil, failUnknown
		}
		if !p.Expires.IsZero() && !a.opts.Now().Before(p.Expires) {
			return nil, failExpired
		}
		return p, nil
	case a.jwt != nil && strings.Count(credential, ".") == 2:
		return a.jwt.verify(ctx, credential, fetch)
	}
	return nil, failUnknown
}

// methodOf is the metric's name of how a credential would be known.
func methodOf(r *http.Request) string {
	header := r.Header["Authorization"]
	switch {
	case len(header) == 0 && shown(r) != nil:
		return string(KindCertificate)
	case len(header) == 0:
		return "none"
	}
	_, credential, _ := strings.Cut(header[0], " ")
	switch {
	case strings.HasPrefix(credential, TokenPrefix):
		return string(KindToken)
	case strings.Count(credential, ".") == 2:
		return string(KindJWT)
	}
	return "other"
}

// openStreams are the sessions of the streams that are open.
type openStreams struct {
	mu   sync.Mutex
	open map[*session]struct{}
}

func (o *openStreams) add(s *session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[*session]struct{}{}
	}
	o.open[s] = struct{}{}
}

func (o *openStreams) remove(s *session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, s)
}

func (o *openStreams) list() []*session {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]*session, 0, len(o.open))
	for s := range o.open {
		out = append(out, s)
	}
	return out
}
