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

// mostOwed limits the debt of a bucket: it is the longest time that a caller
// waits because of the cost of one call.
const mostOwed = time.Minute

// bucket is a token bucket for one rate quota of a caller. Its burst is what
// accrues in the quota's period: one second, or one minute for compilers. A cost
// that is known only afterwards may overdraw the bucket; then nothing more is
// admitted until the debt is paid.
type bucket struct {
	most  int64 // 0: unlimited
	perS  float64
	burst int
	left  *rate.Limiter
}

// setLimit changes the limit of the bucket and keeps its level.
func (b *bucket) setLimit(now time.Time, most int64, perS float64) {
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

// wait returns the time until the bucket has n tokens; 0 if it has them
// now.
func (b *bucket) wait(now time.Time, n float64) time.Duration {
	if b.most == 0 {
		return 0
	}
	// Sums of fractions are off by some millionths.
	short := n - b.left.TokensAt(now)
	if short <= 1e-6*max(1, float64(b.burst)) && short < 0.001 {
		return 0
	}
	return time.Duration(math.Ceil(short / b.perS * float64(time.Second)))
}

// take takes n tokens out of the bucket, which may overdraw it up to mostOwed.
func (b *bucket) take(now time.Time, n uint64) {
	if b.most == 0 || n == 0 {
		return
	}
	owed := mostOwed.Seconds()*b.perS + b.left.TokensAt(now)
	left := int64(min(float64(n), max(owed, 0)))
	for left > 0 { // ReserveN accepts at most the burst, so this takes up to about 60 rounds
		part := min(left, int64(b.burst))
		b.left.ReserveN(now, int(part))
		left -= part
	}
}

// full reports whether the bucket is full, so that it can be forgotten without
// losing information.
func (b *bucket) full(now time.Time) bool {
	return b.most == 0 || b.left.TokensAt(now) >= float64(b.burst)-0.001
}

// Account is the usage of a caller's quotas. It is safe for concurrent use. A
// nil Account sets no limits.
type Account struct {
	owner *Quotas
	key   key

	mu     sync.Mutex
	limits authz.Limits
	rates  [numRates]bucket
	open   [access.NumQuotas]int64 // usage of the quotas that limit concurrent use

	// Protected by owner.mu.
	uses  int           // open connections, streams and uploads together
	place *list.Element // place in owner.idle; nil while the account has something open
}

// Quotas that limit a rate.
var rated = [...]access.Quota{access.CommandsPerSecond, access.FuelPerSecond, access.BytesPerSecond, access.CompileSeconds}

const numRates = len(rated)

// Indexes of the buckets.
const (
	commands = iota
	fuel
	bytes
	compile
)

// follow applies the limits that the caller's roles set now.
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
		a.rates[i].setLimit(now, most, perS)
	}
}

// Take admits a command or a query whose payload has the given number of bytes,
// or returns an *Error.
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

// Spend charges the cost of a command or query that was admitted.
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

// compiles returns an error unless the caller may have a module compiled.
func (a *Account) compiles() error {
	now := a.owner.opts.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if wait := a.rates[compile].wait(now, 0); wait > 0 {
		return a.owner.refuse(access.CompileSeconds, a.limits[access.CompileSeconds], wait)
	}
	return nil
}

// chargeCompile charges processor time of compilers.
func (a *Account) chargeCompile(spent time.Duration) {
	now := a.owner.opts.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rates[compile].take(now, uint64(spent.Milliseconds()))
}

// enter counts one more connection, stream or upload, or returns an error at the
// limit.
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

// full reports whether all buckets of the account are full, so that it can be
// forgotten without losing information.
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
