// Package slots bounds concurrent work and divides it among callers. It does
// not know what the work is, and starts no goroutine.
package slots

import (
	"context"
	"slices"
	"sync"
)

// Slots limit how much work runs concurrently. Callers that wait for a place
// take turns, so a caller with many calls delays other callers only by its
// calls that are already running. Every waiter is a call in progress, so the
// limit on calls also bounds the waiters. It is safe for concurrent use.
type Slots struct {
	mu    sync.Mutex
	free  int
	turns []*line // callers that wait, in the order of their turns
	of    map[string]*line
}

// line holds the calls of a caller that wait, in order. It exists while there
// are any.
type line struct {
	who     string
	waiting []chan struct{} // each is closed when its call gets a place
}

// New returns n places.
func New(n int) *Slots { return &Slots{free: n, of: make(map[string]*line)} }

// Enter waits for a place for a call of the caller and returns the function that
// leaves it, which must be called once. It fails if ctx ends.
func (s *Slots) Enter(ctx context.Context, who string) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return s.leave, nil
	}
	l := s.of[who]
	if l == nil {
		l = &line{who: who}
		s.of[who] = l
		s.turns = append(s.turns, l)
	}
	place := make(chan struct{})
	l.waiting = append(l.waiting, place)
	s.mu.Unlock()
	select {
	case <-place:
		return s.leave, nil
	case <-ctx.Done():
		s.abandon(l, place)
		return nil, ctx.Err()
	}
}

// TryEnter is Enter, but if no place is free it returns false at once.
func (s *Slots) TryEnter() (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return nil, false
	}
	s.free--
	return s.leave, true
}

// leave passes the place to the next call of the caller whose turn it is.
func (s *Slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.turns) == 0 {
		s.free++
		return
	}
	l := s.turns[0]
	s.turns = s.turns[1:]
	close(l.waiting[0])
	if l.waiting = l.waiting[1:]; len(l.waiting) > 0 {
		s.turns = append(s.turns, l)
	} else {
		delete(s.of, l.who)
	}
}

// abandon removes a call that no longer waits. If the call has got a place
// in the meantime, abandon releases the place.
func (s *Slots) abandon(l *line, place chan struct{}) {
	s.mu.Lock()
	at := slices.Index(l.waiting, place)
	if at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
		if len(l.waiting) == 0 {
			delete(s.of, l.who)
			s.turns = slices.DeleteFunc(s.turns, func(other *line) bool { return other == l })
		}
	}
	s.mu.Unlock()
	if at < 0 {
		s.leave()
	}
}
