package subscription

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// errEndReached stops the reading of a history at the requested end.
var errEndReached = errors.New("enough events")

// eventReader streams the events of one entity.
type eventReader struct {
	id     sharding.EntityID
	next   journal.Sequence // the next event to send
	last   journal.Sequence
	shard  sharding.ShardID
	kind   wire.PayloadKind
	gone   bool // the caller no longer accepts events
	upcast bool
	guard  *admission.Stream
	stream *connect.ServerStream[entityv1.ReadEventsResponse]
}

// ReadEvents streams an entity's events.
func (s *Service) ReadEvents(ctx context.Context, r *connect.Request[entityv1.ReadEventsRequest], stream *connect.ServerStream[entityv1.ReadEventsResponse]) error {
	m := r.Msg
	reader := &eventReader{
		id:     sharding.EntityID{Type: m.GetEntityType(), ID: m.GetEntityId()},
		next:   max(1, journal.Sequence(m.GetFromSequence())),
		last:   journal.Sequence(m.GetToSequence()),
		stream: stream, upcast: m.GetUpcast(),
	}
	if reader.last == 0 {
		reader.last = math.MaxUint64
	}
	if err := reader.id.Validate(); err != nil {
		return status.Public(s.Log, err)
	}
	reader.kind = wire.JSONPayload
	switch encoding, err := s.Types.Encoding(ctx, reader.id.Type); {
	case err != nil:
		return status.Public(s.Log, err)
	case encoding == request.Bytes || m.GetAsData():
		reader.kind = wire.DataPayload
	}
	if err := s.mayUpcast(ctx, reader.id.Type, reader.upcast); err != nil {
		return status.Public(s.Log, err)
	}
	guard, err := s.Streams.Enter(ctx)
	if err != nil {
		return status.Public(s.Log, err)
	}
	defer guard.Leave()
	reader.guard = guard
	if m.GetFollow() {
		// Send the headers now, so that the caller knows that the stream is
		// established before there is an event.
		if err := stream.Send(nil); err != nil {
			return err
		}
	}
	reader.shard = s.Sharding.ShardOf(reader.id)
	if err := s.readEvents(ctx, m, reader); err != nil && !errors.Is(err, errEndReached) {
		return status.Public(s.Log, err)
	}
	return nil
}

// follow repeatedly reads and waits for more events, until the requested end is
// reached, the call is cancelled, the server stops, or this node loses the
// leadership. It subscribes to changes before it reads, so that no event is
// missed.
func (s *Service) follow(ctx context.Context, reader *eventReader) error {
	changed, stop := s.Histories.Watch(reader.id)
	defer stop()
	for {
		moved := s.Proxy.Changed()
		if err := reader.read(ctx, s); err != nil {
			return err
		}
		if !s.Proxy.Leads(reader.shard) {
			return &sharding.NotLeaderError{Shard: reader.shard}
		}
		select {
		case <-moved:
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Streams.Stopping():
			return connect.NewError(connect.CodeUnavailable, admission.ErrStopping)
		}
	}
}

// read sends the events from sequence next up to the last existing event, or
// fails with errEndReached after it has sent the requested end.
func (e *eventReader) read(ctx context.Context, s *Service) error {
	if e.next > e.last {
		return errEndReached
	}
	return s.Histories.Read(ctx, e.id, e.next, func(rec *journal.Record) error {
		for i := range rec.Events {
			sequence := rec.Expected + journal.Sequence(i) + 1
			if sequence < e.next {
				continue
			}
			f, err := s.form(ctx, rec, i, e.upcast)
			if err == nil {
				err = e.send(rec, i, f)
			}
			if err != nil {
				return err
			}
			if e.next = sequence + 1; sequence == e.last {
				return errEndReached
			}
		}
		return ctx.Err()
	})
}

// send sends event i of a record in the given form.
func (e *eventReader) send(rec *journal.Record, i int, f form) error {
	out := &entityv1.ReadEventsResponse{
		Sequence:     uint64(rec.Expected) + uint64(i) + 1,
		EventType:    f.eventType,
		StoredType:   f.stored,
		CommandId:    string(rec.CommandID),
		RecordedAt:   timestamppb.New(time.Unix(0, rec.RecordedAt)),
		Tags:         rec.Events[i].Tags,
		ModuleDigest: rec.Module.String(),
		Principal:    PrincipalOf(rec),
	}
	if v, data := codec.Render(e.kind, f.payload); v != nil {
		out.Payload = &entityv1.ReadEventsResponse_Json{Json: v}
	} else if len(data) > 0 {
		out.Payload = &entityv1.ReadEventsResponse_Data{Data: data}
	}
	return e.write(out)
}

// forward sends an event that a different node has prepared.
func (e *eventReader) forward(m *entityv1.ReadEventsResponse) error {
	if journal.Sequence(m.GetSequence()) != e.next {
		return fmt.Errorf("another node returned event %d instead of %d", m.GetSequence(), e.next)
	}
	if err := e.write(m); err != nil {
		return err
	}
	e.next++
	return nil
}

func (e *eventReader) write(m *entityv1.ReadEventsResponse) error {
	e.guard.BeginWrite()
	defer e.guard.EndWrite()
	err := e.stream.Send(m)
	e.gone = err != nil
	return err
}
