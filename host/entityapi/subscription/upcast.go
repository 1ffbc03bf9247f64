package subscription

import (
	"context"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Readers are what events are read with beside the histories of entities.
type Readers struct {
	EventOrder EventOrder // reads whole shards; nil: nothing is subscribed to
	Upcasts    Upcasts    // nil: no events are upcast
}

// Upcasts make of stored events what they are today.
type Upcasts interface {
	// Check refuses to do so for a type whose module cannot.
	Check(ctx context.Context, entityType string) error
	// Upcast returns the type and the payload of an entity's event in the form of
	// today; both may be those of the event.
	Upcast(ctx context.Context, id sharding.EntityID, at journal.Sequence, recordedAt int64, e *journal.Event) (eventType string, payload []byte, err error)
}

// mayUpcast refuses a stream of events that cannot be upcast, where it asks for
// that.
func (s *Service) mayUpcast(ctx context.Context, entityType string, asked bool) error {
	switch {
	case !asked:
		return nil
	case s.Upcasts == nil:
		return request.ErrUnsupported
	}
	return s.Upcasts.Check(ctx, entityType)
}

// form is an event as a stream gives it.
type form struct {
	eventType string
	stored    string // its type in the journal, where that is another
	payload   []byte
}

// form returns event i of a record as it is stored, or upcast.
func (s *Service) form(ctx context.Context, rec *journal.Record, i int, upcast bool) (form, error) {
	e := &rec.Events[i]
	if !upcast || rec.Tombstone(i) {
		return form{e.Type, "", e.Payload}, nil
	}
	made, payload, err := s.Upcasts.Upcast(ctx, rec.Entity, rec.Expected+journal.Sequence(i)+1, rec.RecordedAt, e)
	if err != nil {
		return form{}, err
	}
	out := form{made, "", payload}
	if made != e.Type {
		out.stored = e.Type
	}
	return out, nil
}
