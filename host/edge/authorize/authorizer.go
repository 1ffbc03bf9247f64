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
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/procedure"
	"github.com/hostd/hostd/host/request"
)

// clusterState provides what the node knows about the cluster and needs to
// decide about calls.
type clusterState interface {
	// Known reports whether the node has caught up with the metadata of its
	// cluster and the revision of the roles is the current one. If it is false,
	// there may be roles that the node does not know yet.
	Known(revision uint64) bool
	// Fresh reports whether the roles are recent enough to authorize changes. It
	// must not block.
	Fresh() bool
	// Confirm reads the metadata again and applies its roles. It fails if the
	// metadata cannot be read, or if the caller's credential is no longer valid.
	// It is called before a call that changes metadata, so that no such change
	// is made with rights that were revoked before the call began.
	Confirm(ctx context.Context) error
	// Closed says what applies while no subject has the role admin. If it
	// returns true, all callers are rejected, because callers are
	// authenticated but no roles exist yet that say what each of them may
	// do. If it returns false, every authenticated caller has all rights.
	Closed() bool
	// TypesOf lists the entity types of a stored module, and returns none if the
	// node does not know the digest. A call that names an unknown module
	// needs a rule about all types.
	TypesOf(digest string) []string
	// ServedWith lists the entity types of the module that serves a type.
	ServedWith(entityType string) []string
}

// denials records rejected commands.
type denials interface {
	// RecordDenied is called for each command of a stream that is rejected; it
	// must not block. Rejected unary calls are not reported to it, because the
	// audit log records their errors.
	RecordDenied(ctx context.Context, entityType, entityID, commandID string)
}

// Options configure an Authorizer.
type Options struct {
	Cluster clusterState // required
	// Audit records rejected commands of streams. Nil disables it.
	Audit denials
	// Logger receives messages for operators. Required.
	Logger *slog.Logger
	// Registerer registers the metrics; nil drops them.
	Registerer prometheus.Registerer
}

// Authorizer checks calls against the roles of their callers. It is safe for
// concurrent use.
//
// A call is checked in up to three places:
//
//   - ByHeaders, before its body is read, rejects callers that have no rule at
//     all for the procedure's verb.
//   - Interceptor resolves what the request is about (calls) and decides
//     about it. Commands of a SendCommandStream are decided one by one (Command), and
//     uploads after their types are known (Deploy).
//   - The node that carries out a forwarded request decides again (Passed and
//     decide), because the forwarding node may know older roles.
//
// Roles are part of the metadata, so a node learns of a change a moment later
// than the metadata leader. A read of the metadata before every call would add
// a network round trip to every command. So the required freshness depends on
// what a call can do:
//
//   - Reads are decided by the table that the node has.
//   - Changes are also decided by that table, but they are rejected with
//     request.ErrRolesStale if Fresh reports that it may be outdated.
//   - Changes of the metadata, such as modules, settings and roles, first read
//     the current metadata (Confirm), because a later change of roles does not
//     undo them.
//
// Set replaces the table atomically, so a decision needs no lock. It also
// decides all open streams again and ends streams that are no longer allowed.
type Authorizer struct {
	opts    Options
	table   atomic.Pointer[authz.Table] // nil until the first Set
	refused map[authv1.Verb]prometheus.Counter
	ended   prometheus.Counter
	stale   prometheus.Counter
	streams openStreams

	mu      sync.Mutex
	changed chan struct{} // closed and replaced by each Set
}

// New makes an authorizer. Until Set is called, callers may only bootstrap a
// cluster, look at the node, and ask about themselves.
func New(o Options) *Authorizer {
	a := &Authorizer{opts: o, refused: map[authv1.Verb]prometheus.Counter{}, changed: make(chan struct{})}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hostd_auth_rejections_total", Help: "Calls and stream commands that the caller's roles do not allow, by verb.",
	}, []string{"verb"})
	a.ended = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hostd_auth_role_streams_ended_total", Help: "Streams ended because the caller's roles no longer allow them.",
	})
	a.stale = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "hostd_auth_stale_rejections_total", Help: "Changes and stream commands that the caller's roles allow, but that were rejected because the node's roles were older than a minute.",
	})
	procedure.All(func(_ string, p *procedure.Procedure) {
		a.refused[p.Verb] = refused.WithLabelValues(authz.VerbText(p.Verb))
	})
	if o.Registerer != nil {
		o.Registerer.MustRegister(refused, a.ended, a.stale)
	}
	return a
}

// Set replaces the table that decides calls, and ends the open streams that the
// new table does not allow. A table that is not newer is ignored: revisions
// increase, and while a node loads its metadata again from the first entry,
// its previous table remains in force until a newer table arrives.
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
			a.opts.Logger.Info("ended a stream that the caller's roles no longer allow", "kind", s.by.principalOf().Kind, "principal", s.by.principalOf().Name, "verb", authz.VerbText(s.target.Verb))
		}
	}
}

// Table returns the table that decides calls; nil before the first Set.
func (a *Authorizer) Table() *authz.Table { return a.table.Load() }

// Revision returns the revision of the roles in force, or 0 if no roles are
// in force.
func (a *Authorizer) Revision() uint64 {
	if a == nil {
		return 0
	}
	if t := a.table.Load(); t != nil && t.Enforced() {
		return t.Revision()
	}
	return 0
}

// Await waits until calls are decided by a table of this revision or a later
// revision.
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

// maker is the caller of a call: identified by its credential or, if a different
// node forwarded the call, by what that node states.
type maker struct {
	who    *principal.Principal // nil if the caller was not authenticated
	passed bool                 // a different node forwarded the call
	roles  uint64               // the revision by which the forwarding node decided; 0: none
}

// principalOf returns the caller, or the anonymous principal if it is not known.
func (m maker) principalOf() *principal.Principal { return cmp.Or(m.who, principal.OfNobody()) }

// makerOf returns the caller of the call with this context.
func makerOf(ctx context.Context) maker {
	if s := leaderproxy.SaidOf(ctx); s != nil {
		return maker{who: s.Caller, passed: true, roles: s.Roles}
	}
	return maker{who: authn.Of(ctx).Principal}
}

// decide returns nil if the call is allowed, and otherwise a
// *request.DeniedError or request.ErrRolesUnknown. revision is the revision
// of the roles that decided, or 0 if no roles are in force.
//
// A call that a different node forwarded is decided again, by the roles that
// this node knows, because the forwarding node may know older roles or may not
// check roles at all. If the forwarding node decided by newer roles, a
// denial by the older roles of this node proves nothing, so the result is
// ErrRolesUnknown instead.
func (a *Authorizer) decide(by maker, t *procedure.Procedure, c authz.Call) (revision uint64, err error) {
	table := a.table.Load()
	behind := by.roles > 0 && (table == nil || by.roles > table.Revision())
	if table == nil || !table.Enforced() {
		known := table != nil && !behind && a.opts.Cluster.Known(table.Revision())
		switch {
		case t.Scope == procedure.Founding || c.Verb == authv1.Verb_SELF:
			return 0, nil
		case known && !by.passed && a.opts.Cluster.Closed():
			return 0, noAdminError(c)
		case known || c.Verb == authv1.Verb_READ && c.Types == authz.Nothing:
			return 0, nil
		}
		return 0, request.ErrRolesUnknown
	}
	made := authz.Unmatched
	switch {
	case by.who == nil: // without a caller no rule matches
	case t.Scope == procedure.Later:
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
	return table.Revision(), deniedError(by.who, c, made)
}

// ask is decideCall for the caller in ctx.
func (a *Authorizer) ask(ctx context.Context, t *procedure.Procedure, c authz.Call) (revision uint64, err error) {
	return a.decideCall(makerOf(ctx), t, c)
}

// decideCall is decide for a call that begins now, and counts rejected
// calls. It also rejects a change that the roles allow if these roles may be
// outdated.
func (a *Authorizer) decideCall(by maker, t *procedure.Procedure, c authz.Call) (revision uint64, err error) {
	revision, err = a.decide(by, t, c)
	switch {
	case err != nil:
		a.refused[t.Verb].Inc()
	case revision != 0 && t.Changes && !a.opts.Cluster.Fresh():
		a.stale.Inc()
		return revision, request.ErrRolesStale
	}
	return revision, err
}

// AuthorizeForwarded decides whether the original caller of a forwarded request may make it.
// Messages between entities are not subject to roles.
func (a *Authorizer) AuthorizeForwarded(q *request.Request) error {
	verb := authv1.Verb_QUERY
	switch q.Kind {
	case request.Command:
		verb = authv1.Verb_INVOKE
	case request.Query, request.StaleQuery:
	default:
		return nil
	}
	_, err := a.decideCall(maker{who: q.Principal, passed: true, roles: q.Roles}, &procedure.Procedure{Verb: verb, Changes: verb == authv1.Verb_INVOKE},
		authz.Call{Verb: verb, Types: authz.One, Type: q.Entity.Type, IDs: authz.One, ID: q.Entity.ID, Command: q.Name})
	return err
}

// check is ask for a call or a stream. It also records the revision of the
// roles that decided, for the entries in the audit log.
func (a *Authorizer) check(ctx context.Context, t *procedure.Procedure, c authz.Call) error {
	revision, err := a.ask(ctx, t, c)
	audit.SetPolicyRevision(ctx, revision)
	return err
}

// checkAll is check for a request that concerns several types or entities.
func (a *Authorizer) checkAll(ctx context.Context, t *procedure.Procedure, calls []authz.Call) error {
	for _, c := range calls {
		if err := a.check(ctx, t, c); err != nil {
			return err
		}
	}
	return nil
}

// decideAll is decide for a request that concerns several types or entities.
func (a *Authorizer) decideAll(by maker, t *procedure.Procedure, calls []authz.Call) error {
	for _, c := range calls {
		if _, err := a.decide(by, t, c); err != nil {
			return err
		}
	}
	return nil
}

// Command decides whether the caller may send a command to an entity.
func (a *Authorizer) Command(ctx context.Context, entityType, entityID, command, commandID string) error {
	c := authz.Call{Verb: authv1.Verb_INVOKE, Types: authz.One, Type: entityType, IDs: authz.One, ID: entityID, Command: command}
	revision, err := a.ask(ctx, &procedure.Procedure{Verb: c.Verb, Changes: true}, c)
	if err != nil {
		audit.SetPolicyRevision(ctx, revision)
		a.ReportRefused(ctx, entityType, entityID, commandID)
	}
	return err
}

// ReportRefused reports a command of a stream that a different node rejected.
func (a *Authorizer) ReportRefused(ctx context.Context, entityType, entityID, commandID string) {
	if a != nil && a.opts.Audit != nil {
		a.opts.Audit.RecordDenied(ctx, entityType, entityID, commandID)
	}
}

// confirm reads the current roles before a call that changes metadata. Such
// calls are rare, and a later change of roles does not undo what they change.
// Other calls are decided by the roles that the node has received, which are
// slightly old; Fresh reports when they are too old for changes.
func (a *Authorizer) confirm(ctx context.Context, t *procedure.Procedure) error {
	if !changesMetadata(t) {
		return nil
	}
	return a.opts.Cluster.Confirm(ctx)
}

// changesMetadata reports whether the call changes metadata.
func changesMetadata(t *procedure.Procedure) bool {
	if !t.Changes || t.Scope == procedure.Founding {
		return false
	}
	switch t.Verb {
	case authv1.Verb_DEPLOY, authv1.Verb_SETTINGS, authv1.Verb_ADMIN, authv1.Verb_SECURITY:
		return true
	}
	return false
}

// Deploy decides whether the caller may activate modules for a type. It uses the
// current roles, because an upload may have taken long.
func (a *Authorizer) Deploy(ctx context.Context, entityType string) error {
	t := &procedure.Procedure{Verb: authv1.Verb_DEPLOY, Changes: true}
	if err := a.confirm(ctx, t); err != nil {
		return err
	}
	return a.check(ctx, t, authz.Call{Verb: authv1.Verb_DEPLOY, Types: authz.One, Type: entityType})
}

// narrowedKey is the context key of VisiblePrefixes.
type narrowedKey struct{}

// VisiblePrefixes returns the prefixes of entity ids to which a listing is restricted
// because its caller may see no others; empty means no restriction.
func VisiblePrefixes(ctx context.Context) []string {
	to, _ := ctx.Value(narrowedKey{}).([]string)
	return to
}

// narrow restricts a listing to the entities that the caller's roles allow, if
// they allow only a part of it. It returns false if the call is not restricted.
func (a *Authorizer) narrow(ctx context.Context, t *procedure.Procedure, c authz.Call) (context.Context, bool) {
	table, by := a.table.Load(), makerOf(ctx)
	if !t.Narrows || table == nil || !table.Enforced() || by.passed || by.who == nil || table.Decide(by.who, c) == authz.Allowed {
		return ctx, false
	}
	to := table.Beginnings(by.who, c)
	if len(to) == 0 {
		return ctx, false
	}
	audit.SetPolicyRevision(ctx, table.Revision())
	return context.WithValue(ctx, narrowedKey{}, to), true
}

// Reaches reports whether the caller may do anything with a type. Answers to
// calls that are about no type omit the types that the caller cannot reach.
func (a *Authorizer) Reaches(ctx context.Context, entityType string) bool {
	if a == nil {
		return true
	}
	table, by := a.table.Load(), makerOf(ctx)
	return table == nil || !table.Enforced() || by.who != nil && table.Reaches(by.who, entityType)
}

// MayRead reports whether the caller has the right to read an entity, for parts
// of answers that need it in addition to the right that the call needs.
func (a *Authorizer) MayRead(ctx context.Context, entityType, entityID string) bool {
	if a == nil {
		return true
	}
	c := authz.Call{Verb: authv1.Verb_READ, Types: authz.One, Type: entityType, IDs: authz.One, ID: entityID}
	_, err := a.decide(makerOf(ctx), &procedure.Procedure{Verb: c.Verb}, c)
	return err == nil
}

// MayQuery reports whether the caller has the right to send an entity a query,
// for parts of answers that need it in addition to the right that the call
// needs.
func (a *Authorizer) MayQuery(ctx context.Context, entityType, entityID, query string) bool {
	if a == nil {
		return true
	}
	c := authz.Call{Verb: authv1.Verb_QUERY, Types: authz.One, Type: entityType, IDs: authz.One, ID: entityID, Command: query}
	_, err := a.decide(makerOf(ctx), &procedure.Procedure{Verb: c.Verb}, c)
	return err == nil
}

// AllowedByRoles reports whether the caller's roles have allowed the call:
// the `admin` option of the node's configuration has an effect only if roles
// do not decide. Calls that invoke or query do not have this mark, because
// they are frequent and never need it.
func AllowedByRoles(ctx context.Context) bool { return leaderproxy.RolesOf(ctx) != 0 }

// mark records the revision of the roles in the context, for AllowedByRoles, if
// roles are in force.
func (a *Authorizer) mark(ctx context.Context, t *procedure.Procedure) context.Context {
	if revision := a.Revision(); revision != 0 && !t.Frequent {
		return leaderproxy.WithRoles(ctx, revision)
	}
	return ctx
}

// Answer is the answer to a CheckAccess request.
type Answer struct {
	Caller  *principal.Principal
	Roles   []string
	Allowed bool
	Reason  string
}

// Explain decides whether the caller may make a call, and says why.
func (a *Authorizer) Explain(ctx context.Context, c authz.Call) Answer {
	by, table := makerOf(ctx), a.table.Load()
	p := by.principalOf()
	out := Answer{Caller: p}
	_, err := a.decide(by, &procedure.Procedure{Verb: c.Verb}, c)
	if out.Allowed = err == nil; err != nil {
		out.Reason = err.Error()
	}
	switch {
	case table == nil:
	case !table.Enforced():
		if err == nil {
			out.Reason = "role checks are off, because there is no admin: every accepted caller has all rights"
		}
	default:
		out.Roles = table.RolesOf(p)
		if err == nil {
			out.Reason = why(authz.Allowed)
		}
	}
	return out
}
