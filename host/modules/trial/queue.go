package trial

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/sharding"
)

// Bounds of a Queue.
const (
	maxWaiting      = 256
	maxWaitingBytes = 8 << 20
)

// Command is a copy of one that a guest has decided.
type Command struct {
	For    *Watch // why it is compared
	Entity sharding.EntityID
	Input  []byte // frames that the guest got
	Output []byte // and those that it answered, where Failed is not set
	Failed bool
	Now    int64 // as in the guest's environment
	Seed   uint64
	Fuel   int64 // that it cost
}

func (c *Command) bytes() int { return len(c.Input) + len(c.Output) + len(c.Entity.ID) }

// Queue holds the commands that wait to be compared, up to maxWaiting and
// maxWaitingBytes; more are dropped. It is safe for concurrent use.
type Queue struct {
	dropped atomic.Uint64
	waiting chan Command

	mu    sync.Mutex
	bytes int
}

// NewQueue returns one in which nothing waits.
func NewQueue() *Queue { return &Queue{waiting: make(chan Command, maxWaiting)} }

// Offer copies a command into the queue, or drops it, and says whether it
// waits now. It does not block, and leaves the command's slices to the caller.
func (q *Queue) Offer(c Command) bool {
	size := c.bytes()
	q.mu.Lock()
	fits := q.bytes+size <= maxWaitingBytes && len(q.waiting) < cap(q.waiting)
	if fits {
		q.bytes += size
	}
	q.mu.Unlock()
	if !fits {
		q.dropped.Add(1)
		return false
	}
	both := append(append(make([]byte, 0, len(c.Input)+len(c.Output)), c.Input...), c.Output...)
	c.Input, c.Output = both[:len(c.Input):len(c.Input)], both[len(c.Input):]
	select {
	case q.waiting <- c:
		return true
	default: // another one came between
		q.gone(size)
		q.dropped.Add(1)
		return false
	}
}

// Take returns the command that waits longest, which is the caller's then.
func (q *Queue) Take(ctx context.Context) (Command, error) {
	select {
	case c := <-q.waiting:
		q.gone(c.bytes())
		return c, nil
	case <-ctx.Done():
		return Command{}, ctx.Err()
	}
}

func (q *Queue) gone(size int) {
	q.mu.Lock()
	q.bytes -= size
	q.mu.Unlock()
}

// Dropped is how many there was no room for.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// Taken reports whether a command belongs to the share of all, of 10,000, that
// is compared. seed is that of its random numbers.
func Taken(seed uint64, share uint32) bool { return seed%sharding.Buckets < uint64(share) }
