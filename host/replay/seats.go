package replay

import (
	"context"
	"sync"
)

// seats limits how many callers work at a time, in total and for each entity
// type. Callers get seats in the order of arrival. A caller first takes a
// seat of its type and only then queues with other types, so a slow type
// cannot keep the others out. It is safe for concurrent use.
type seats struct {
	free chan *seat // free seats of all types
	each int        // seats of each type

	mu    sync.Mutex
	types map[string]*typeSeats // types with a user
}

// seat lets one goroutine work. It has the pace of that work.
type seat struct{ pace *pace }

type typeSeats struct {
	free  chan struct{}
	users int
}

// newSeats returns seats: all in total, and each for one type. Every seat has
// its own pace.
func newSeats(all, each int, l load) *seats {
	s := &seats{free: make(chan *seat, all), each: each, types: map[string]*typeSeats{}}
	for range all {
		s.free <- &seat{newPace(0, l)}
	}
	return s
}

// take waits for a seat, which must be returned with give. It returns an error
// if ctx ends first.
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

func (s *seats) release(entityType string, back *seat) {
	s.free <- back
	s.mu.Lock()
	own := s.types[entityType]
	s.mu.Unlock()
	own.free <- struct{}{}
	s.quit(entityType)
}

// join adds a user of a type's seats.
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

// quit removes a user of a type's seats, which must have returned its seat.
func (s *seats) quit(entityType string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.types[entityType]
	if own.users--; own.users == 0 {
		delete(s.types, entityType)
	}
}
