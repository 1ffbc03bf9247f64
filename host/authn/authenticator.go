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

// refusals records rejected requests.
type refusals interface {
	// RecordRefused is called for each rejected request and must not block.
	RecordRefused(r *http.Request, reason string)
}

// Options configures an Authenticator.
type Options struct {
	// Anonymous accepts callers without a credential. An invalid credential is
	// rejected in any case.
	Anonymous bool
	// TokenFile holds the hashes of static tokens; empty means none.
	TokenFile string
	// CaughtUp is set once the node has caught up with the tokens in the
	// metadata. Before that, an unknown token may be valid, so it is rejected
	// with unavailable instead of unauthenticated. Nil means always.
	CaughtUp *atomic.Bool
	// CertName makes clients' certificates credentials of requests without an
	// Authorization header.
	CertName CertName
	// NodeCert reports whether a certificate belongs to a node, which makes it
	// invalid for clients. Nil means that no certificate does.
	NodeCert func(*x509.Certificate) bool
	// JWT configures the tokens of an issuer; nil means that no JWT is
	// accepted.
	JWT *JWTOptions
	// Now is the clock for expiry; nil means time.Now.
	Now func() time.Time
	// Audit records rejected requests. It may be nil.
	Audit refusals
	// Logger receives messages for operators, which never contain credentials;
	// nil discards them.
	Logger *slog.Logger
	// Registerer registers the metrics; nil means none.
	Registerer prometheus.Registerer
}

// Authenticator identifies callers by their credentials. It is safe for
// concurrent use.
type Authenticator struct {
	opts     Options
	metrics  *metrics
	failures failures
	tokens   atomic.Pointer[tokenTable] // tokens of the token file
	kept     atomic.Pointer[tokenTable] // tokens of the metadata
	jwt      *jwtVerifier               // nil: JWTs are not accepted

	reading sync.Mutex // held while files are read
	files   []*files.Watched
	reload  chan struct{} // one slot
	streams openStreams

	renewing sync.Mutex
	revision uint64 // revision of kept
}

// New creates an authenticator. It reads the files and returns an error if a
// file is invalid. It makes no network request.
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

// Reload makes Run read the files again even if they look unchanged.
func (a *Authenticator) Reload() {
	select {
	case a.reload <- struct{}{}:
	default:
	}
}

// SetTokens replaces the tokens of the metadata, which are accepted in
// addition to the tokens of the file, and ends streams whose token was
// removed. It ignores a revision that is not higher than the previous
// revision.
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

// InFile reports whether the token file contains a token with this name.
func (a *Authenticator) InFile(name string) bool { return a.tokens.Load().has(name) }

// Intervals of the checks in Run.
const (
	lookEvery    = time.Second      // changed files and expired credentials of streams
	recheckEvery = 30 * time.Second // contents of files and all credentials of streams
)

// Run keeps credentials and keys up to date, and ends streams whose credential
// is no longer valid, until ctx ends.
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

// look reads changed files, or all of them, and ends streams whose credential
// has expired. If a file has changed or all is set, it also ends streams whose
// credential is no longer valid.
func (a *Authenticator) look(ctx context.Context, all bool) {
	changed := a.readFiles(all)
	for _, s := range a.streams.list() {
		switch {
		case s.isExpired(a.opts.Now()):
			a.end(s, failExpired)
		case s.principal.Kind == KindCertificate:
			// The certificate is valid as long as its connection exists. The
			// owner of the connection closes it if an authority is removed.
		case changed || all:
			a.recheck(ctx, s)
		}
	}
}

// recheck ends a stream whose credential is no longer valid, or now belongs to
// another principal.
func (a *Authenticator) recheck(ctx context.Context, s *session) {
	if p, fail := a.verify(ctx, s.credential, false); fail != nil && fail != failKeys || fail == nil && (p.Kind != s.principal.Kind || p.Name != s.principal.Name) {
		a.end(s, failRevoked)
	}
}

// Recheck returns an error if the token of a request is no longer valid
// according to the tokens known now.
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

// end ends a stream and logs why.
func (a *Authenticator) end(s *session, why *failure) {
	if s.end(why) {
		a.metrics.streams.Inc()
		a.opts.Logger.Info("ended a stream because its credential expired or was revoked", "kind", s.principal.Kind, "principal", s.principal.Name, "reason", why.reason)
	}
}

// readFiles reads files that have changed, or all of them. If a file cannot be
// read or is invalid, the previous contents stay in use and the error is logged
// once. A change takes effect when two looks have seen the same contents.
func (a *Authenticator) readFiles(all bool) (changed bool) {
	a.reading.Lock()
	defer a.reading.Unlock()
	for _, f := range a.files {
		if !all && !f.HasChanged() {
			continue
		}
		now, err := f.Read()
		switch {
		case err != nil:
			a.metrics.reloads.WithLabelValues(f.What).Inc()
			if f.News(err) {
				a.opts.Logger.Error("cannot reload a credential file; its previous contents stay in effect", "file", f.Path, "error", err)
			}
		case now:
			a.opts.Logger.Info("reloaded a credential file", "file", f.Path)
		}
		changed = changed || now
	}
	return changed
}

// session is the caller of a request, with its credential.
type session struct {
	principal  *Principal
	credential string

	// The following fields are for streams.
	mu    sync.Mutex
	abort func() // nil unless the stream is open
	ended *failure
	w     http.ResponseWriter
}

func (s *session) isExpired(now time.Time) bool {
	return !s.principal.Expires.IsZero() && !now.Before(s.principal.Expires.Add(leewayOf(s.principal.Kind)))
}

// leewayOf returns how long after its expiry a credential is accepted.
func leewayOf(k kind) time.Duration {
	if k == KindJWT {
		return jwtLeeway
	}
	return 0
}

// authenticate identifies the caller of a request.
func (a *Authenticator) authenticate(r *http.Request) (p *Principal, credential string, fail *failure) {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		switch c := clientCertificate(r); {
		case c != nil && a.opts.CertName != CertNone:
			p, fail = a.identifyCertificate(c)
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

// verify identifies the owner of a credential. It waits for the keys of an
// issuer only if fetch is set, and then at most fetchPatience.
func (a *Authenticator) verify(ctx context.Context, credential string, fetch bool) (*Principal, *failure) {
	switch {
	case strings.HasPrefix(credential, tokenPrefix):
		hash := sha256.Sum256([]byte(credential))
		p, kept := a.tokens.Load().find(hash), a.kept.Load().find(hash)
		if p == nil {
			p = kept
		}
		switch {
		case p == nil && a.opts.CaughtUp != nil && !a.opts.CaughtUp.Load():
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

// methodOf returns the metric label for the kind of credential in a request.
func methodOf(r *http.Request) string {
	header := r.Header["Authorization"]
	switch {
	case len(header) == 0 && clientCertificate(r) != nil:
		return string(KindCertificate)
	case len(header) == 0:
		return "none"
	}
	_, credential, _ := strings.Cut(header[0], " ")
	switch {
	case strings.HasPrefix(credential, tokenPrefix):
		return string(KindToken)
	case strings.Count(credential, ".") == 2:
		return string(KindJWT)
	}
	return "other"
}

// openStreams is the set of sessions of open streams.
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
