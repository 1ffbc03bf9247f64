package trial

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Counts are what one module did of the commands of a type.
type Counts struct {
	Commands   uint64 // given to a guest, whatever came of them
	Rejections uint64 // of these, refused by it
	Faults     uint64 // calls of all kinds that failed by the guest's fault
	Nanos      uint64 // that guests took for the commands
	// Took is how many commands took how long, see Bound.
	Took [Buckets]uint64
}

// Times are told apart in buckets: those below 2^firstBit ns, then steps
// to each doubling, and the last is for all that is longer.
const (
	firstBit = 10
	lastBit  = 36 // 69 s
	stepBits = 2
	steps    = 1 << stepBits

	// Buckets is how many there are.
	Buckets = (lastBit-firstBit+1)*steps + 1
)

// bucket is where a time is counted.
func bucket(d time.Duration) int {
	n := uint64(max(0, d))
	bit := bits.Len64(n) - 1
	if bit < firstBit {
		return 0
	}
	within := int(n>>(bit-stepBits)) - steps
	return min(Buckets-1, 1+(bit-firstBit)*steps+within)
}

// BucketBound is below what the times of a bucket are; those of the next one begin
// with it. The last one has none.
func BucketBound(bucket int) time.Duration {
	n := bucket / steps
	return time.Duration(steps+bucket%steps) << (firstBit + n - stepBits)
}

// Add adds what others counted.
func (c *Counts) Add(o *Counts) {
	c.Commands += o.Commands
	c.Rejections += o.Rejections
	c.Faults += o.Faults
	c.Nanos += o.Nanos
	for i, n := range o.Took {
		c.Took[i] += n
	}
}

// since is what was counted after base.
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

// P99 is what 99 of 100 commands take at most, up to a quarter too long; 0 of
// none.
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
			return BucketBound(i)
		}
	}
	return BucketBound(Buckets - 1)
}

// slower is how many commands took so long or longer for certain.
func (c *Counts) slower(than time.Duration) (slower uint64) {
	for i := 1; i < Buckets; i++ {
		if BucketBound(i-1) >= than {
			slower += c.Took[i]
		}
	}
	return slower
}

// Counter counts for one module and type, while it is watched. Its methods are
// safe for concurrent use, and those that count do nothing on nil.
type Counter struct {
	watched                             atomic.Bool
	commands, rejections, faults, nanos atomic.Uint64
	took                                [Buckets]atomic.Uint64

	mu     sync.Mutex // guards what follows
	window uint64     // 0: nobody watches
	base   Counts     // at its beginning
}

// Watched reports whether commands are to be counted.
func (c *Counter) Watched() bool { return c != nil && c.watched.Load() }

// Watch begins a window, where it is another one than before; 0 ends what there
// is.
func (c *Counter) Watch(window uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.window != window {
		c.window, c.base = window, c.total()
		c.watched.Store(window != 0)
	}
}

// Command counts one that was given to a guest.
func (c *Counter) Command(took time.Duration, rejected bool) {
	if !c.Watched() {
		return
	}
	c.commands.Add(1)
	if rejected {
		c.rejections.Add(1)
	}
	c.nanos.Add(uint64(max(0, took)))
	c.took[bucket(took)].Add(1)
}

// Fault counts a call that failed by the guest's fault.
func (c *Counter) Fault() {
	if c.Watched() {
		c.faults.Add(1)
	}
}

// Total is what was counted in all windows.
func (c *Counter) Total() Counts { return c.total() }

func (c *Counter) total() Counts {
	out := Counts{Commands: c.commands.Load(), Rejections: c.rejections.Load(), Faults: c.faults.Load(), Nanos: c.nanos.Load()}
	for i := range c.took {
		out.Took[i] = c.took[i].Load()
	}
	return out
}

// Since is the window and what was counted in it; 0 where nobody watches.
func (c *Counter) Since() (window uint64, counts Counts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.window, c.total().since(&c.base)
}
