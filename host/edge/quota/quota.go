package quota

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// Limits of idle accounts, whose callers have nothing open here. If there
// are maxIdle idle accounts, a new idle account replaces one of the `oldest`
// accounts that were used least recently. An account whose buckets are full
// is preferred, because its removal loses no information. If none of them is
// full, the usage of the last second (or minute, for compilers) is
// forgotten. Accounts with something open are bounded by the number of
// connections and streams.
const (
	maxIdle = 4096
	oldest  = 64
)

// whenEnded is the retry delay for callers that have too much open, because
// it is not known when one of its connections, streams or uploads ends.
const whenEnded = time.Second

// byDefault is the role in metrics if no role sets the quota.
const byDefault = "(default)"

// roles provides the roles of callers.
type roles interface {
	// Table returns the current table of roles; nil while it is not known.
	Table() *authz.Table
}

// Options configure Quotas.
type Options struct {
	Roles roles // required
	// Anonymous applies access.AnonymousQuotas to callers without a credential.
	Anonymous bool
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Registerer registers the metrics; nil drops them.
	Registerer prometheus.Registerer
}

// Quotas has the limits of callers and their usage. It is safe for concurrent
// use. Nil Quotas set no limits.
type Quotas struct {
	opts      Options
	standard  authz.Limits
	anonymous authz.Limits
	refused   *prometheus.CounterVec

	mu       sync.Mutex
	accounts map[key]*Account
	idle     *list.List // *Account, the most recently used first
}

// key identifies a caller.
type key struct {
	kind principal.Kind
	name string
}

// New makes Quotas.
func New(o Options) *Quotas {
	if o.Now == nil {
		o.Now = time.Now
	}
	q := &Quotas{opts: o, accounts: map[key]*Account{}, idle: list.New()}
	q.standard, q.anonymous = limits(access.DefaultQuotas()), limits(access.DefaultQuotas())
	if o.Anonymous {
		q.anonymous = limits(access.AnonymousQuotas())
	}
	q.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "hostd_quota_rejections_total", Help: "Calls, stream commands and connections that exceeded a quota of their caller, by quota and the role that sets it.",
	}, []string{"quota", "role"})
	for _, name := range access.QuotaNames {
		q.refused.WithLabelValues(name, byDefault)
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(q.refused)
	}
	return q
}

func limits(of access.Quotas) (out authz.Limits) {
	for i := range out {
		out[i] = authz.Limit{Most: of.Get(access.Quota(i)), Role: byDefault}
	}
	return out
}

// Of returns the account of a call's caller, or nil if no per-second quota
// applies to it.
func (q *Quotas) Of(ctx context.Context) *Account {
	if q == nil {
		return nil
	}
	table := q.opts.Roles.Table()
	if table == nil || !table.Enforced() {
		return nil
	}
	p := authn.Of(ctx).Principal
	anonymous := q.opts.Anonymous && p.Kind == principal.Anonymous
	if !table.HasRates() && !anonymous || leaderproxy.FromPeer(ctx) {
		return nil
	}
	l := table.Limits(p)
	if l[access.CommandsPerSecond].Most <= 0 && l[access.FuelPerSecond].Most <= 0 && l[access.BytesPerSecond].Most <= 0 && !anonymous {
		return nil
	}
	return q.account(p, &l, 0)
}

// open returns the account of a caller that opens a connection, stream or
// upload, or nil if no quota applies to it. The account must be passed to close
// afterwards.
func (q *Quotas) open(ctx context.Context) *Account {
	table := q.opts.Roles.Table()
	if table == nil || !table.Enforced() || leaderproxy.FromPeer(ctx) {
		return nil
	}
	p := authn.Of(ctx).Principal
	l := table.Limits(p)
	return q.account(p, &l, 1)
}

// account finds or makes the account of a caller, and applies the current limits
// to it.
func (q *Quotas) account(p *principal.Principal, l *authz.Limits, uses int) *Account {
	standard := &q.standard
	if p.Kind == principal.Anonymous {
		standard = &q.anonymous
	}
	for i := range l {
		if l[i].Most == 0 {
			l[i] = standard[i]
		}
	}
	now, k := q.opts.Now(), key{p.Kind, p.Name}
	q.mu.Lock()
	a := q.accounts[k]
	if a == nil {
		a = &Account{owner: q, key: k}
		q.accounts[k] = a
	}
	switch a.uses += uses; {
	case a.uses == 0 && a.place == nil:
		q.rest(a, now)
	case a.uses == 0:
		q.idle.MoveToFront(a.place)
	case a.place != nil:
		q.idle.Remove(a.place)
		a.place = nil
	}
	q.mu.Unlock()
	a.mu.Lock()
	a.follow(now, l)
	a.mu.Unlock()
	return a
}

// close reverts open.
func (q *Quotas) close(a *Account) {
	now := q.opts.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.uses--; a.uses > 0 {
		return
	}
	if a.full(now) {
		delete(q.accounts, a.key)
		return
	}
	q.rest(a, now)
}

// rest adds an account to the idle accounts, and removes a different idle
// account if there are too many. q.mu must be held.
func (q *Quotas) rest(a *Account, now time.Time) {
	if q.idle.Len() >= maxIdle {
		gone := q.idle.Back()
		for e, n := gone, 0; e != nil && n < oldest; e, n = e.Prev(), n+1 {
			if e.Value.(*Account).full(now) {
				gone = e
				break
			}
		}
		q.idle.Remove(gone)
		delete(q.accounts, gone.Value.(*Account).key)
	}
	a.place = q.idle.PushFront(a)
}

// refuse makes the error for a request over a quota, and counts it.
func (q *Quotas) refuse(which access.Quota, l authz.Limit, wait time.Duration) error {
	q.refused.WithLabelValues(which.String(), l.Role).Inc()
	return &Error{Quota: which, Most: l.Most, RetryAfter: wait}
}

// Error: a request was over a quota of its caller. Nothing was done.
type Error struct {
	Quota      access.Quota
	Most       int64
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	return fmt.Sprintf("the caller exceeded its quota %s=%d on this node; retry after %v", e.Quota, e.Most, e.RetryAfter.Round(time.Millisecond))
}

// Code implements status.Coded.
func (e *Error) Code() connect.Code { return connect.CodeResourceExhausted }

// Detail implements status.Detailed.
func (e *Error) Detail() proto.Message {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}
}
