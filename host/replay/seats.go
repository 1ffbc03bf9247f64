package replay

import (
	"context"
	"sync"
)

// seats bound what is done at a time: of all entity types, and of one. Who
// waits gets a seat in the order of coming, and of a type only as many wait
// with those of other types as may sit: so a slow one keeps nobody else out. It
// is safe for concurrent use.
type seats struct {
	free chan *seat // of all types
	each int        // of one

	mu    sync.Mutex
	types map[string]*typeSeats // that somebody has or wants one of
}

// seat is what one goroutine works on at a time.
type seat struct{ pace *pace }

type typeSeats struct {
	free  chan struct{}
	users int
}

// newSeats makes seats: so many over all, and so many of a type, each with a
// pace of its own.
func newSeats(all, each int, busy func() bool) *seats {
	s := &seats{free: make(chan *seat, all), each: each, types: map[string]*typeSeats{}}
	for range all {
		s.free <- &seat{newPace(0, busy)}
	}
	return s
}

// take waits for a seat, which is given back to give. It returns the error of a
// ctx that has ended.
func (s *seats) take(ctx context.Context, entityType string) (*seat, error) {
	own := s.join(entityType)
	select {
	case <-own.free:
	case <-ctx.Done():
		s.quit(entityType)
		return nil, ctx.Err()
	}
	select {
	case taken := <-s.free:
		return taken, nil
	case <-ctx.Done():
		own.free <- struct{}{}
		s.quit(entityType)
		return nil, ctx.Err()
	}
}

func (s *seats) give(entityType string, back *seat) {
	s.free <- back
	s.mu.Lock()
	own := s.types[entityType]
	s.mu.Unlock()
	own.free <- struct{}{}
	s.quit(entityType)
}

// join counts a user of a type's seats.
func (s *seats) join(entityType string) *typeSeats {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.types[entityType]
	if own == nil {
		own = &typeSeats{free: make(chan struct{}, s.each)}
		for range s.each {
			own.free <- struct{}{}
		}
		s.types[entityType] = own
	}
	own.users++
	return own
}

// quit takes a user back that has given its seat back, if it had one.
func (s *seats) quit(entityType string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.types[entityType]
	if own.users--; own.users == 0 {
		delete(s.types, entityType)
	}
}
