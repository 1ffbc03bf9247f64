package quota

import (
	"container/list"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/sharding/access"
)

// mostOwed is the longest that a caller waits for what one call has cost.
const mostOwed = time.Minute

// bucket is what a caller may do in a time. What was not used is kept for as
// long as the bucket is for: a second, or a minute of compilers. It may be
// overdrawn by what is known only when it is done; then nothing more begins
// until that is paid.
type bucket struct {
	most  int64 // 0 is no bound
	perS  float64
	burst int
	left  *rate.Limiter
}

// bound has the bucket have another number; what was used up counts on.
func (b *bucket) bound(now time.Time, most int64, perS float64) {
	if b.most == most {
		return
	}
	b.most, b.perS, b.burst = most, perS, int(min(most, math.MaxInt))
	switch {
	case most == 0:
		b.left = nil
	case b.left == nil:
		b.left = rate.NewLimiter(rate.Limit(perS), b.burst)
	default:
		b.left.SetLimitAt(now, rate.Limit(perS))
		b.left.SetBurstAt(now, b.burst)
	}
}

// wait is for how long the bucket has less than n.
func (b *bucket) wait(now time.Time, n float64) time.Duration {
	if b.most == 0 {
		return 0
	}
	// Sums of fractions are off by some millionths of one.
	short := n - b.left.TokensAt(now)
	if short <= 1e-6*max(1, float64(b.burst)) && short < 0.001 {
		return 0
	}
	return time.Duration(math.Ceil(short / b.perS * float64(time.Second)))
}

// take takes n out of the bucket, which may overdraw it.
func (b *bucket) take(now time.Time, n uint64) {
	if b.most == 0 || n == 0 {
		return
	}
	owed := mostOwed.Seconds()*b.perS + b.left.TokensAt(now)
	left := int64(min(float64(n), max(owed, 0)))
	for left > 0 { // no more than the burst at a time, some 60 times at most
		part := min(left, int64(b.burst))
		b.left.ReserveN(now, int(part))
		left -= part
	}
}

// full reports that nothing would be lost if the bucket was forgotten.
func (b *bucket) full(now time.Time) bool {
	return b.most == 0 || b.left.TokensAt(now) >= float64(b.burst)-0.001
}

// Account is what a caller has used of its quotas. It is safe for concurrent
// use. A nil Account bounds nothing.
type Account struct {
	owner *Quotas
	key   key

	mu     sync.Mutex
	limits authz.Limits
	rates  [numRates]bucket
	open   [access.NumQuotas]int64 // of those that are of what is there at a time

	// Of owner.mu.
	uses  int           // what is there at a time, of all quotas
	place *list.Element // among the idle; nil while it has something open
}

// Quotas that are of what is done in a time.
var rated = [...]access.Quota{access.CommandsPerSecond, access.FuelPerSecond, access.BytesPerSecond, access.CompileSeconds}

const numRates = len(rated)

// Places of buckets.
const (
	commands = iota
	fuel
	bytes
	compile
)

// follow has the account go by what its roles say now.
func (a *Account) follow(now time.Time, limits *authz.Limits) {
	if a.limits == *limits {
		return
	}
	a.limits = *limits
	for i, q := range rated {
		most := max(limits[q].Most, 0)
		perS := float64(most)
		if i == compile {
			most *= int64(time.Second / time.Millisecond)
			perS = float64(most) / 60
		}
		a.rates[i].bound(now, most, perS)
	}
}

// Take lets a command or a query in whose payload has so many bytes, or returns
// an *Error.
func (a *Account) Take(payload int) error {
	if a == nil {
		return nil
	}
	now := a.owner.opts.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, n := range [...]float64{commands: 1, fuel: 0, bytes: 0} {
		if wait := a.rates[i].wait(now, n); wait > 0 {
			return a.owner.refuse(rated[i], a.limits[rated[i]], wait)
		}
	}
	a.rates[commands].take(now, 1)
	a.rates[bytes].take(now, uint64(payload))
	return nil
}

// Spend charges what a command or a query has cost that was let in.
func (a *Account) Spend(units uint64, reply int) {
	if a == nil {
		return
	}
	now := a.owner.opts.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rates[fuel].take(now, units)
	a.rates[bytes].take(now, uint64(reply))
}

// compiles says whether the caller may have something compiled.
func (a *Account) compiles() error {
	now := a.owner.opts.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if wait := a.rates[compile].wait(now, 0); wait > 0 {
		return a.owner.refuse(access.CompileSeconds, a.limits[access.CompileSeconds], wait)
	}
	return nil
}

// compiled charges the processor time of compilers.
func (a *Account) compiled(spent time.Duration) {
	now := a.owner.opts.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rates[compile].take(now, uint64(spent.Milliseconds()))
}

// enter counts one more of what is there at a time.
func (a *Account) enter(q access.Quota) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if most := a.limits[q].Most; most >= 0 && a.open[q] >= most {
		return a.owner.refuse(q, a.limits[q], whenEnded)
	}
	a.open[q]++
	return nil
}

func (a *Account) leave(q access.Quota) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[q]--
}

// full reports that nothing would be lost if the account was forgotten.
func (a *Account) full(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.rates {
		if !a.rates[i].full(now) {
			return false
		}
	}
	return true
}
