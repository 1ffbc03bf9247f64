package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hostd/hostd/host/request"
)

// Bounds of uploads that wait for their turn, beside those
// that go on: of an address, and of all.
const (
	maxWaitingUploadsOf = 4
	maxWaitingUploads   = 16
)

// Uploads gives uploads their turns: a module takes memory and, for up to a
// minute, the one compiler of the node. One of an address goes on at a time, so
// that who uploads without end takes no second turn while others wait for one,
// and what else waits of an address goes behind the others when one of it ends.
//
//	enter --> goes on, as far as there is room and its address has none --> leave
//	  └─────> waits, in turn ───────────────▲
//
// It is safe for concurrent use.
type Uploads struct {
	most int

	mu      sync.Mutex
	under   map[string]bool // addresses with one that goes on
	waiting []*uploadTurn
}

// uploadTurn is an upload that goes on, or waits for its turn.
type uploadTurn struct {
	from  string
	begun chan struct{} // closed when it may go on
}

// NewUploads lets most of them go on at a time.
func NewUploads(most int) *Uploads { return &Uploads{most: most} }

// enter waits for the turn of an upload from an address, for as long as ctx
// lasts. leave is called once. request.ErrOverloaded: it got none.
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
		leave() // it has just begun
	}
	return nil, fmt.Errorf("%w: uploads of others were under way all the time", request.ErrOverloaded)
}

// queue puts an upload behind those that wait.
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
		u.waiting = u.waiting[:len(u.waiting)-1] // the one that has come: it waits
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

// begin lets those go on that may.
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

// Enter waits for the turn of a call that uploads; leave is called once.
func (u *Uploads) Enter(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, compileDeadline)
	defer cancel()
	from := ""
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		from = c.from
	}
	return u.enter(ctx, from)
}
