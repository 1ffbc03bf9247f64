package subscription

import (
	"context"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Readers are the sources of events other than the histories of entities.
type Readers struct {
	EventOrder EventOrder // reads whole shards; nil: SubscribeEvents is unimplemented
	Upcasts    Upcasts    // if nil, events cannot be upcast
}

// Upcasts converts stored events to the current form of their types.
type Upcasts interface {
	// Check returns an error if the module of a type cannot upcast.
	Check(ctx context.Context, entityType string) error
	// Upcast returns the type and payload of an entity's event in the current
	// form. They may share memory with the event.
	Upcast(ctx context.Context, id sharding.EntityID, at journal.Sequence, recordedAt int64, e *journal.Event) (eventType string, payload []byte, err error)
}

// mayUpcast returns an error if a stream asks for upcasting that is not
// possible.
func (s *Service) mayUpcast(ctx context.Context, entityType string, asked bool) error {
	switch {
	case !asked:
		return nil
	case s.Upcasts == nil:
		return request.ErrUnsupported
	}
	return s.Upcasts.Check(ctx, entityType)
}

// form is an event in the form in which a stream sends it.
type form struct {
	eventType string
	stored    string // the type in the journal, if that is different
	payload   []byte
}

// form returns event i of a record, in its current form if upcast is set and in
// its stored form otherwise.
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
