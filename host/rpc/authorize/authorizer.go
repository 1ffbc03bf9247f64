package authorize

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
)

// Options of an Authorizer.
type Options struct {
	// Known reports that the node has caught up with the metadata of its cluster
	// and that the revision of the roles is the one of now: else there may be
	// roles that it has not heard of. Required.
	Known func(revision uint64) bool
	// Fresh reports that the roles are those of a moment ago, as far as they may
	// decide changes; it must not block. Nil is always.
	Fresh func() bool
	// Confirm reads the metadata anew and has the roles of then decide. It fails
	// if the metadata cannot be read, or if the caller's credential does not hold
	// any more. It is called before a call that changes what the metadata holds,
	// so that no such change is made by rights that were taken away before it
	// began. Nil reads nothing.
	Confirm func(ctx context.Context) error
	// Closed reports that callers may do nothing while nobody is admin: they are
	// asked who they are, and nothing says yet who of them may do what. Nil is
	// never, so whoever is let in has all rights until then.
	Closed func() bool
	// Refused is told of each command of a stream that is refused; it must not
	// block. Calls that are refused are told of by their errors. Nil is told of
	// none.
	Refused func(ctx context.Context, entityType, entityID, commandID string)
	// TypesOf lists the entity types of a stored module, none if the node does not
	// know the digest. Nil knows none: then whoever asks for a module needs a rule
	// about all types.
	TypesOf func(digest string) []string
	// ServedWith lists the entity types of the module that serves a type. Nil: that
	// one alone.
	ServedWith func(entityType string) []string
	// Logger gets what operators should see. Required.
	Logger *slog.Logger
	// Registerer gets the metrics; nil drops them.
	Registerer prometheus.Registerer
}

// Authorizer holds calls to the roles of their callers. It is safe for
// concurrent use.
type Authorizer struct {
	opts    Options
	targets map[string]target
	table   atomic.Pointer[authz.Table] // nil until the first Set
	refused map[authv1.Verb]prometheus.Counter
	ended   prometheus.Counter
	stale   prometheus.Counter
	streams openStreams

	mu      sync.Mutex
	changed chan struct{} // closed and replaced by each Set
}

// New makes an authorizer. Until Set is called nobody may do anything but
// found a cluster, and look at the node.
func New(o Options) *Authorizer {
	a := &Authorizer{opts: o, targets: targets(), refused: map[authv1.Verb]prometheus.Counter{}, changed: make(chan struct{})}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hostd_auth_refusals_total", Help: "Calls, and commands of streams, that the caller's roles do not allow, by verb.",
	}, []string{"verb"})
	a.ended = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hostd_auth_role_streams_ended_total", Help: "Streams that were ended because the caller's roles do not allow them any more.",
	})
	a.stale = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hostd_auth_stale_refusals_total", Help: "Changes, and commands of streams, that the caller's roles allow and that were refused because this node has not heard of them for a minute.",
	})
	for _, t := range a.targets {
		a.refused[t.verb] = refused.WithLabelValues(authz.VerbText(t.verb))
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(refused, a.ended, a.stale)
	}
	return a
}

// Set has calls decided by a newer table from now on, and ends the streams that
// it does not allow. One that is no newer is passed over: revisions count up,
// and where the metadata begins anew on a node, what it had known decides until
// that is overtaken.
func (a *Authorizer) Set(t *authz.Table) {
	a.mu.Lock()
	if before := a.table.Load(); before != nil && before.Revision() >= t.Revision() {
		a.mu.Unlock()
		return
	}
	a.table.Store(t)
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
	for _, s := range a.streams.list() {
		if err := a.decideAll(s.by, s.target, s.calls); err != nil && s.end(err) {
			a.ended.Inc()
			a.opts.Logger.Info("ended a stream that the caller's roles do not allow any more", "kind", s.by.said().Kind, "principal", s.by.said().Name, "verb", authz.VerbText(s.target.verb))
		}
	}
}

// Table is what decides now; nil before the first Set.
func (a *Authorizer) Table() *authz.Table { return a.table.Load() }

// Revision is that of the roles that decide now, 0 while none do.
func (a *Authorizer) Revision() uint64 {
	if a == nil {
		return 0
	}
	if t := a.table.Load(); t != nil && t.InForce() {
		return t.Revision()
	}
	return 0
}

// Await waits until calls are decided by a table of the revision or a later
// one.
func (a *Authorizer) Await(ctx context.Context, revision uint64) error {
	for {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		if t := a.table.Load(); t != nil && t.Revision() >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// maker is who makes a call: by its credential or, where the call is passed on,
// by what the node says that was asked.
type maker struct {
	who    *principal.Principal // nil where nobody was asked
	passed bool                 // another node passes it on
	roles  uint64               // the revision by which that one has decided; 0: none
}

// said is who makes the call, as far as that is known.
func (m maker) said() *principal.Principal { return cmp.Or(m.who, principal.OfNobody()) }

// makerOf is who makes the call of a context.
func makerOf(ctx context.Context) maker {
	if s := leaderproxy.SaidOf(ctx); s != nil {
		return maker{who: s.Caller, passed: true, roles: s.Roles}
	}
	return maker{who: authn.Of(ctx).Principal}
}

// decide says whether a call may be made: nil, a *request.DeniedError or
// request.ErrRolesUnknown. revision is that of the roles that say so, 0 where
// roles decide nothing.
//
// What another node passes on is decided again, by the roles that this node
// knows: that one may know older ones, or may not decide at all. Where it knows
// newer ones, this node cannot say that they allow less.
func (a *Authorizer) decide(by maker, t target, c authz.Call) (revision uint64, err error) {
	table := a.table.Load()
	behind := by.roles > 0 && (table == nil || by.roles > table.Revision())
	if table == nil || !table.InForce() {
		known := table != nil && !behind && a.opts.Known(table.Revision())
		switch {
		case t.founding || c.Verb == authv1.Verb_SELF:
			return 0, nil
		case known && !by.passed && a.opts.Closed != nil && a.opts.Closed():
			return 0, closed(c)
		case known || c.Verb == authv1.Verb_READ && c.Types == authz.Nothing:
			return 0, nil
		}
		return 0, request.ErrRolesUnknown
	}
	made := authz.Unmatched
	switch {
	case by.who == nil: // it is nobody's
	case t.later:
		made = table.Ever(by.who, c.Verb)
	default:
		made = table.Decide(by.who, c)
	}
	switch {
	case made == authz.Allowed:
		return table.Revision(), nil
	case behind:
		return table.Revision(), request.ErrRolesUnknown
	}
	return table.Revision(), denied(by.who, c, made)
}

// ask is decide for a call that has a context, and counts what is refused.
func (a *Authorizer) ask(ctx context.Context, t target, c authz.Call) (revision uint64, err error) {
	return a.counted(makerOf(ctx), t, c)
}

// counted decides a call that is made now: of what roles allow, a change is
// refused where they may be those of a while ago.
func (a *Authorizer) counted(by maker, t target, c authz.Call) (revision uint64, err error) {
	revision, err = a.decide(by, t, c)
	switch {
	case err != nil:
		a.refused[t.verb].Inc()
	case revision != 0 && t.changes && a.opts.Fresh != nil && !a.opts.Fresh():
		a.stale.Inc()
		return revision, request.ErrRolesStale
	}
	return revision, err
}

// Passed says whether the caller of a request that another node passes on may
// make it. What entities send to each other is not held to roles.
func (a *Authorizer) Passed(q *request.Request) error {
	verb := authv1.Verb_QUERY
	switch q.Kind {
	case request.Command:
		verb = authv1.Verb_INVOKE
	case request.Query, request.StaleQuery:
	default:
		return nil
	}
	_, err := a.counted(maker{who: q.Principal, passed: true, roles: q.Roles}, target{verb: verb, changes: verb == authv1.Verb_INVOKE},
		authz.Call{Verb: verb, Types: authz.One, Type: q.Entity.Type, IDs: authz.One, ID: q.Entity.ID, Command: q.Name})
	return err
}

// check is ask for a call or a stream, whose lines in the audit log tell by
// which roles it was decided.
func (a *Authorizer) check(ctx context.Context, t target, c authz.Call) error {
	revision, err := a.ask(ctx, t, c)
	audit.Decided(ctx, revision)
	return err
}

// checkAll is check for a request that is about several things.
func (a *Authorizer) checkAll(ctx context.Context, t target, calls []authz.Call) error {
	for _, c := range calls {
		if err := a.check(ctx, t, c); err != nil {
			return err
		}
	}
	return nil
}

// decideAll is decide for a request that is about several things.
func (a *Authorizer) decideAll(by maker, t target, calls []authz.Call) error {
	for _, c := range calls {
		if _, err := a.decide(by, t, c); err != nil {
			return err
		}
	}
	return nil
}

// Command says whether the caller may have an entity carry out a command.
func (a *Authorizer) Command(ctx context.Context, entityType, entityID, command, commandID string) error {
	c := authz.Call{Verb: authv1.Verb_INVOKE, Types: authz.One, Type: entityType, IDs: authz.One, ID: entityID, Command: command}
	revision, err := a.ask(ctx, target{verb: c.Verb, changes: true}, c)
	if err != nil {
		audit.Decided(ctx, revision)
		a.Refused(ctx, entityType, entityID, commandID)
	}
	return err
}

// Refused tells that another node has refused a command of a stream.
func (a *Authorizer) Refused(ctx context.Context, entityType, entityID, commandID string) {
	if a != nil && a.opts.Refused != nil {
		a.opts.Refused(ctx, entityType, entityID, commandID)
	}
}

// confirm reads the roles of now before a call that changes what the metadata
// holds: these are rare, and what they change is not undone by the next change
// of roles. Other calls are decided by what the node has heard, which is a
// moment old, and of which Fresh says when it is too old for changes.
func (a *Authorizer) confirm(ctx context.Context, t target) error {
	if a.opts.Confirm == nil || !t.confirmed() {
		return nil
	}
	return a.opts.Confirm(ctx)
}

// confirmed reports whether the call changes what the metadata holds.
func (t target) confirmed() bool {
	if !t.changes || t.founding {
		return false
	}
	switch t.verb {
	case authv1.Verb_DEPLOY, authv1.Verb_SETTINGS, authv1.Verb_ADMIN, authv1.Verb_SECURITY:
		return true
	}
	return false
}

// Deploy says whether the caller may say which module serves a type, by the
// roles of now: an upload may have taken long.
func (a *Authorizer) Deploy(ctx context.Context, entityType string) error {
	t := target{verb: authv1.Verb_DEPLOY, changes: true}
	if err := a.confirm(ctx, t); err != nil {
		return err
	}
	return a.check(ctx, t, authz.Call{Verb: authv1.Verb_DEPLOY, Types: authz.One, Type: entityType})
}

// narrowedKey is the context's key for how far a call is answered.
type narrowedKey struct{}

// Narrowed are the beginnings of the entity ids that a listing is for, where
// its caller may see no others; empty is all that it asks for.
func Narrowed(ctx context.Context) []string {
	to, _ := ctx.Value(narrowedKey{}).([]string)
	return to
}

// narrow makes the context of a call that is answered as far as its caller's
// roles allow, where they do not allow all of it.
func (a *Authorizer) narrow(ctx context.Context, t target, c authz.Call) (context.Context, bool) {
	table, by := a.table.Load(), makerOf(ctx)
	if !t.narrows || table == nil || !table.InForce() || by.passed || by.who == nil || table.Decide(by.who, c) == authz.Allowed {
		return ctx, false
	}
	to := table.Beginnings(by.who, c)
	if len(to) == 0 {
		return ctx, false
	}
	audit.Decided(ctx, table.Revision())
	return context.WithValue(ctx, narrowedKey{}, to), true
}

// Reaches reports whether the caller may do anything with a type. What answers a
// call that is about no type leaves out the others.
func (a *Authorizer) Reaches(ctx context.Context, entityType string) bool {
	if a == nil {
		return true
	}
	table, by := a.table.Load(), makerOf(ctx)
	return table == nil || !table.InForce() || by.who != nil && table.Reaches(by.who, entityType)
}

// Decided reports that the caller's roles allow the call: what the node's
// configuration says of changes counts only where roles do not decide. Calls
// that invoke or query do not have it.
func Decided(ctx context.Context) bool { return leaderproxy.RolesOf(ctx) != 0 }

// mark puts Decided into a context.
func (a *Authorizer) mark(ctx context.Context, t target) context.Context {
	if revision := a.Revision(); revision != 0 && !t.frequent {
		return leaderproxy.WithRoles(ctx, revision)
	}
	return ctx
}

// Answer is what a caller is told of itself.
type Answer struct {
	Caller  *principal.Principal
	Roles   []string
	Allowed bool
	Reason  string
}

// Explain says whether the caller may make a call.
func (a *Authorizer) Explain(ctx context.Context, c authz.Call) Answer {
	by, table := makerOf(ctx), a.table.Load()
	p := by.said()
	out := Answer{Caller: p}
	_, err := a.decide(by, target{verb: c.Verb}, c)
	if out.Allowed = err == nil; err != nil {
		out.Reason = err.Error()
	}
	switch {
	case table == nil:
	case !table.InForce():
		if err == nil {
			out.Reason = "roles decide nothing yet: nobody is admin, and whoever is let in has all rights"
		}
	default:
		out.Roles = table.RolesOf(p)
		if err == nil {
			out.Reason = why(authz.Allowed)
		}
	}
	return out
}
