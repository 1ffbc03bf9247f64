package subscription

import (
	"context"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge/leaderproxy"
)

// readPatience is how long a subscription that does not follow waits for the
// next event while one of its readers fails.
const readPatience = 10 * time.Second

// readEvents sends events from the node that leads the shard. If the leader
// changes, it continues at the new leader after the last event that was sent,
// so that no event is omitted or duplicated.
func (s *Service) readEvents(ctx context.Context, m *entityv1.ReadEventsRequest, reader *eventReader) error {
	var search leaderproxy.Search
	var pause leaderproxy.Backoff
	for {
		from := reader.next
		changed := s.Proxy.Changed()
		err := s.readOnce(ctx, m, reader)
		if reader.next > from {
			search.Reset()
			pause = leaderproxy.Backoff{}
		}
		fromPeer := leaderproxy.FromPeer(ctx)
		switch {
		case err == nil || fromPeer || reader.gone || s.Proxy.Alone() || ctx.Err() != nil || s.Streams.IsStopping() || !leaderproxy.Retry(err) && !leaderproxy.IsCanceled(err):
			return leaderproxy.CallerError(err)
		case m.GetFollow():
			if pause.Wait(ctx, changed) != nil {
				return leaderproxy.CallerError(err)
			}
		case !search.Again(ctx, s.Proxy, reader.shard, changed, err):
			return leaderproxy.CallerError(err)
		}
	}
}

// readOnce reads from the current leader, until the end or an error.
func (s *Service) readOnce(ctx context.Context, m *entityv1.ReadEventsRequest, reader *eventReader) error {
	leader, err := s.Proxy.Leader(ctx, reader.shard)
	switch {
	case err != nil:
		return err
	case leader != nil:
		return s.relay(ctx, leader, m, reader)
	case m.GetFollow():
		return s.follow(ctx, reader)
	}
	return reader.read(ctx, s)
}

// relay passes on the events that a different node sends.
func (s *Service) relay(ctx context.Context, leader entityv1connect.EntityServiceClient, m *entityv1.ReadEventsRequest, reader *eventReader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	defer close(ended)
	go func() { // this goroutine ends the call when the server stops
		select {
		case <-s.Streams.Stopping():
			cancel()
		case <-ended:
		}
	}()
	in, err := leader.ReadEvents(ctx, connect.NewRequest(&entityv1.ReadEventsRequest{
		EntityType: m.GetEntityType(), EntityId: m.GetEntityId(), FromSequence: uint64(reader.next), ToSequence: m.GetToSequence(),
		Follow: m.GetFollow(), AsData: m.GetAsData(), Upcast: m.GetUpcast(),
	}))
	if err != nil {
		return err
	}
	defer in.Close()
	for in.Receive() {
		if err := reader.forward(in.Msg()); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return err
	}
	return errEndReached
}
