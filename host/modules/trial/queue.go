package trial

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/sharding"
)

// Bounds of a Queue: the number of commands, and their bytes.
const (
	maxWaiting      = 256
	maxWaitingBytes = 8 << 20
)

// Command is a copy of a command that a guest has decided.
type Command struct {
	For    *Watch // the watch that compares the command
	Entity sharding.EntityID
	Input  []byte // input frames of the guest
	Output []byte // output frames of the guest, unless Failed
	Failed bool
	Now    int64 // time of the guest's environment, unix nanoseconds
	Seed   uint64
	Fuel   int64 // fuel that the guest spent
}

func (c *Command) bytes() int { return len(c.Input) + len(c.Output) + len(c.Entity.ID) }

// Queue holds the commands that wait to be compared. It drops commands beyond
// maxWaiting or maxWaitingBytes. It is safe for concurrent use.
type Queue struct {
	dropped atomic.Uint64
	waiting chan Command

	mu    sync.Mutex
	bytes int
}

// newQueue returns an empty queue.
func newQueue() *Queue { return &Queue{waiting: make(chan Command, maxWaiting)} }

// Offer copies a command into the queue and returns true, or drops it. It does
// not block and does not keep the command's slices.
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
	default: // a concurrent Offer filled the queue
		q.release(size)
		q.dropped.Add(1)
		return false
	}
}

// Take waits for the oldest command and returns it. The caller owns the
// command. If ctx ends, Take returns the error of ctx.
func (q *Queue) Take(ctx context.Context) (Command, error) {
	select {
	case c := <-q.waiting:
		q.release(c.bytes())
		return c, nil
	case <-ctx.Done():
		return Command{}, ctx.Err()
	}
}

func (q *Queue) release(size int) {
	q.mu.Lock()
	q.bytes -= size
	q.mu.Unlock()
}

// dropCount returns the number of dropped commands.
func (q *Queue) dropCount() uint64 { return q.dropped.Load() }

// inShare reports whether a command belongs to the compared share, in units of
// 1/sharding.Buckets. seed is the seed of the command's random numbers.
func inShare(seed uint64, share uint32) bool { return seed%sharding.Buckets < uint64(share) }
