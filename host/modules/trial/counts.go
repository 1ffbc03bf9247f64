package trial

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Counts are the counts and durations of the commands of a type that one module
// handled.
type Counts struct {
	Commands   uint64 // commands given to a guest, with any outcome
	Rejections uint64 // commands that the guest rejected
	Faults     uint64 // failed guest calls of all kinds that are the guest's fault
	Nanos      uint64 // total duration of the guest calls for commands
	// Took counts commands by duration, see bucketBound.
	Took [Buckets]uint64
}

// Durations are counted in buckets: one below 2^firstBit ns, then steps for
// each doubling, and a last one for all longer durations.
const (
	firstBit = 10
	lastBit  = 36 // 2^36 ns are 69 s
	stepBits = 2
	steps    = 1 << stepBits

	// Buckets is the number of buckets.
	Buckets = (lastBit-firstBit+1)*steps + 1
)

// bucket returns the bucket of a duration.
func bucket(d time.Duration) int {
	n := uint64(max(0, d))
	bit := bits.Len64(n) - 1
	if bit < firstBit {
		return 0
	}
	within := int(n>>(bit-stepBits)) - steps
	return min(Buckets-1, 1+(bit-firstBit)*steps+within)
}

// bucketBound returns the exclusive upper bound of a bucket, which is the lower
// bound of the next one. The last bucket has no upper bound.
func bucketBound(bucket int) time.Duration {
	n := bucket / steps
	return time.Duration(steps+bucket%steps) << (firstBit + n - stepBits)
}

// Add adds other counts.
func (c *Counts) Add(o *Counts) {
	c.Commands += o.Commands
	c.Rejections += o.Rejections
	c.Faults += o.Faults
	c.Nanos += o.Nanos
	for i, n := range o.Took {
		c.Took[i] += n
	}
}

// since returns the counts without those already in base.
func (c Counts) since(base *Counts) Counts {
	c.Commands -= base.Commands
	c.Rejections -= base.Rejections
	c.Faults -= base.Faults
	c.Nanos -= base.Nanos
	for i, n := range base.Took {
		c.Took[i] -= n
	}
	return c
}

// P99 returns an upper bound for the 99th percentile of the durations, at most
// a quarter too high. It returns 0 if there are none.
func (c *Counts) P99() time.Duration {
	var all, below uint64
	for _, n := range c.Took {
		all += n
	}
	if all == 0 {
		return 0
	}
	for i, n := range c.Took {
		if below += n; below*100 >= all*99 {
			return bucketBound(i)
		}
	}
	return bucketBound(Buckets - 1)
}

// slower returns how many commands certainly lasted at least the given time.
func (c *Counts) slower(than time.Duration) (slower uint64) {
	for i := 1; i < Buckets; i++ {
		if bucketBound(i-1) >= than {
			slower += c.Took[i]
		}
	}
	return slower
}

// Counter counts for one module and type while someone watches it. Its methods
// are safe for concurrent use. IsWatched, Command and Fault do nothing on a nil
// Counter.
type Counter struct {
	watched                             atomic.Bool
	commands, rejections, faults, nanos atomic.Uint64
	took                                [Buckets]atomic.Uint64

	mu     sync.Mutex // guards window and base
	window uint64     // 0 if not watched
	base   Counts     // counts at the beginning of the window
}

// IsWatched reports whether commands must be counted.
func (c *Counter) IsWatched() bool { return c != nil && c.watched.Load() }

// Watch begins the given window, unless it is already the current one. 0 ends
// the current window.
func (c *Counter) Watch(window uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.window != window {
		c.window, c.base = window, c.total()
		c.watched.Store(window != 0)
	}
}

// Command counts a command that was given to a guest.
func (c *Counter) Command(took time.Duration, rejected bool) {
	if !c.IsWatched() {
		return
	}
	c.commands.Add(1)
	if rejected {
		c.rejections.Add(1)
	}
	c.nanos.Add(uint64(max(0, took)))
	c.took[bucket(took)].Add(1)
}

// Fault counts a call that failed because of the guest.
func (c *Counter) Fault() {
	if c.IsWatched() {
		c.faults.Add(1)
	}
}

// Total returns the counts of all windows.
func (c *Counter) Total() Counts { return c.total() }

func (c *Counter) total() Counts {
	out := Counts{Commands: c.commands.Load(), Rejections: c.rejections.Load(), Faults: c.faults.Load(), Nanos: c.nanos.Load()}
	for i := range c.took {
		out.Took[i] = c.took[i].Load()
	}
	return out
}

// Since returns the current window and its counts. The window is 0 if nobody
// watches.
func (c *Counter) Since() (window uint64, counts Counts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window, c.total().since(&c.base)
}
