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
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/sharding/access"
)

// Accounts of callers that have nothing open here. One more takes the place of
// the one that was used least lately, of those of which nothing would be lost
// where there is one among the oldest few: what is forgotten of another is that
// it had used something in the last second, or minute for compilers. Those that
// have something open are as few as that is.
const (
	maxIdle = 4096
	oldest  = 64
)

// whenEnded is what callers are told to wait who have too much open: when some
// of it ends nobody knows.
const whenEnded = time.Second

// byDefault is the role in metrics where none says anything of a quota.
const byDefault = "(default)"

// Options of Quotas.
type Options struct {
	// Table is what roles say now; nil while that is not known. Required.
	Table func() *authz.Table
	// Anonymous holds those without a credential to access.AnonymousQuotas.
	Anonymous bool
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Registerer gets the metrics; nil drops them.
	Registerer prometheus.Registerer
}

// Quotas are what callers may have, and what they have used. It is safe for
// concurrent use. Nil Quotas bound nobody.
type Quotas struct {
	opts      Options
	standard  authz.Limits
	anonymous authz.Limits
	refused   *prometheus.CounterVec

	mu       sync.Mutex
	accounts map[key]*Account
	idle     *list.List // *Account, the one used last in front
}

// key is a caller.
type key struct {
	kind principal.Kind
	name string
}

// New makes quotas.
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
		Name: "hostd_quota_refusals_total", Help: "Calls, commands of streams and connections that were over a quota of their caller, by quota and by the role that says what it is.",
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

// Of is the account of who makes a call, nil where nothing that is done in a
// second is bounded for it.
func (q *Quotas) Of(ctx context.Context) *Account {
	if q == nil {
		return nil
	}
	table := q.opts.Table()
	if table == nil || !table.InForce() {
		return nil
	}
	p := authn.Of(ctx).Principal
	anonymous := q.opts.Anonymous && p.Kind == principal.Anonymous
	if !table.Rated() && !anonymous || leaderproxy.FromPeer(ctx) {
		return nil
	}
	l := table.Limits(p)
	if l[access.CommandsPerSecond].Most <= 0 && l[access.FuelPerSecond].Most <= 0 && l[access.BytesPerSecond].Most <= 0 && !anonymous {
		return nil
	}
	return q.account(p, &l, 0)
}

// open is the account of who makes a call that has something open; nil where
// nothing is bounded for it. It is to be closed.
func (q *Quotas) open(ctx context.Context) *Account {
	table := q.opts.Table()
	if table == nil || !table.InForce() || leaderproxy.FromPeer(ctx) {
		return nil
	}
	p := authn.Of(ctx).Principal
	l := table.Limits(p)
	return q.account(p, &l, 1)
}

// account finds the account of a caller, or makes one, and has it go by what
// roles say.
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

// close ends what open began.
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

// rest puts an account among the idle, in the place of another one where there
// are too many. It is called with the lock held.
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

// refuse makes the refusal of what is over a quota, and counts it.
func (q *Quotas) refuse(which access.Quota, l authz.Limit, wait time.Duration) error {
	q.refused.WithLabelValues(which.String(), l.Role).Inc()
	return &Error{Quota: which, Most: l.Most, RetryAfter: wait}
}

// Error refuses what is over a quota of its caller. Nothing was done.
type Error struct {
	Quota      access.Quota
	Most       int64
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	return fmt.Sprintf("over the quota %s=%d that the caller has on this node; retry after %v", e.Quota, e.Most, e.RetryAfter.Round(time.Millisecond))
}

// Code implements status.Coded.
func (e *Error) Code() connect.Code { return connect.CodeResourceExhausted }

// Detail implements status.Detailed.
func (e *Error) Detail() proto.Message {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}
}
