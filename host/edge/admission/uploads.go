package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hostd/hostd/host/request"
)

// Limits of uploads that wait for their turn, per address and in total.
const (
	maxWaitingUploadsOf = 4
	maxWaitingUploads   = 16
)

// Uploads schedules uploads, because a module needs memory and, for up to a
// minute, the only compiler of the node. One address has at most one upload in
// progress, so that a client that uploads endlessly gets no second turn while
// others wait. When an upload of an address ends, the waiting uploads of
// that address move behind the waiting uploads of other addresses.
//
//	enter ──> runs, if there is room and its address has none ──> leave
//	  └─────> waits for its turn ──▲
//
// It is safe for concurrent use.
type Uploads struct {
	most int

	mu      sync.Mutex
	under   map[string]bool // addresses that have an upload in progress
	waiting []*uploadTurn
}

// uploadTurn is an upload that is in progress or waits for its turn.
type uploadTurn struct {
	from  string
	begun chan struct{} // closed when the upload may begin
}

// NewUploads allows most uploads in progress.
func NewUploads(most int) *Uploads { return &Uploads{most: most} }

// enter waits for the turn of an upload from an address until ctx ends, in which
// case it fails with request.ErrOverloaded. leave must be called once.
func (u *Uploads) enter(ctx context.Context, from string) (leave func(), err error) {
	turn, err := u.queue(from)
	if err != nil {
		return nil, err
	}
	leave = func() { u.leave(from) }
	select {
	case <-turn.begun:
		return leave, nil
	case <-ctx.Done():
	}
	u.mu.Lock()
	at := slices.Index(u.waiting, turn)
	if at >= 0 {
		u.waiting = slices.Delete(u.waiting, at, at+1)
	}
	u.mu.Unlock()
	if at < 0 {
		leave() // the upload's turn began when ctx ended
	}
	return nil, fmt.Errorf("%w: other uploads were running for the whole time", request.ErrOverloaded)
}

// queue appends an upload to the waiting ones.
func (u *Uploads) queue(from string) (*uploadTurn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	turn := &uploadTurn{from: from, begun: make(chan struct{})}
	u.waiting = append(u.waiting, turn)
	u.begin()
	of := 0
	for _, w := range u.waiting {
		if w.from == from {
			of++
		}
	}
	if of > maxWaitingUploadsOf || len(u.waiting) > maxWaitingUploads {
		u.waiting = u.waiting[:len(u.waiting)-1] // the new upload, which is last because it has not begun
		return nil, fmt.Errorf("%w: too many uploads are waiting", request.ErrOverloaded)
	}
	return turn, nil
}

// leave ends an upload of an address.
func (u *Uploads) leave(from string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.under, from)
	slices.SortStableFunc(u.waiting, func(a, b *uploadTurn) int {
		switch {
		case a.from == from && b.from != from:
			return 1
		case a.from != from && b.from == from:
			return -1
		}
		return 0
	})
	u.begin()
}

// begin starts the waiting uploads that may begin.
func (u *Uploads) begin() {
	u.waiting = slices.DeleteFunc(u.waiting, func(w *uploadTurn) bool {
		if len(u.under) >= u.most || u.under[w.from] {
			return false
		}
		if u.under == nil {
			u.under = map[string]bool{}
		}
		u.under[w.from] = true
		close(w.begun)
		return true
	})
}

// Enter waits for the turn of a call that uploads, for at most compileDeadline;
// leave must be called once.
func (u *Uploads) Enter(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, compileDeadline)
	defer cancel()
	from := ""
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		from = c.from
	}
	return u.enter(ctx, from)
}
