package entityapi

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// deadLetters gives access to the dead letters of the shards that this node
// leads.
type deadLetters interface {
	// List returns up to limit dead letters of a shard after the dead letter
	// with the id after, in the order in which they became dead letters; the
	// zero id is before the first. It stops after the letter that reaches the
	// given number of bytes. more reports whether there are further letters.
	List(ctx context.Context, shard sharding.ShardID, after journal.ItemID, limit, bytes int) (found []journal.DeadLetter, more bool, err error)
	// Retry delivers a dead letter again. If the letter never had a
	// destination, it is sent again as a new message. Retry fails with
	// errNoDeadLetter, or with the entity's error.
	Retry(ctx context.Context, shard sharding.ShardID, id journal.ItemID) error
	// Discard removes a dead letter. It fails with errNoDeadLetter.
	Discard(ctx context.Context, shard sharding.ShardID, id journal.ItemID) error
}

// errNoDeadLetter: the dead letter does not exist, or does not exist any more.
var errNoDeadLetter = status.New(connect.CodeNotFound, "the dead letter does not exist; 'hostd entity deadletters ls' lists them")

// deadLetterID encodes the API's id of a dead letter: its shard, and its id
// within the shard.
func deadLetterID(shard sharding.ShardID, id journal.ItemID) string {
	return fmt.Sprintf("%d-%d-%d-%d", shard, id.Index, id.Ordinal, id.Item)
}

func parseDeadLetterID(s string) (shard sharding.ShardID, id journal.ItemID, err error) {
	if n, err := fmt.Sscanf(s, "%d-%d-%d-%d", &shard, &id.Index, &id.Ordinal, &id.Item); err != nil || n != 4 || deadLetterID(shard, id) != s {
		return 0, id, status.Argument("the id is not that of a dead letter")
	}
	return shard, id, nil
}

// maxDeadLetters is the largest page of dead letters.
const maxDeadLetters = 500

// ListDeadLetters lists one page of dead letters, one shard after the other.
func (s *handler) ListDeadLetters(ctx context.Context, r *connect.Request[entityv1.ListDeadLettersRequest]) (*connect.Response[entityv1.ListDeadLettersResponse], error) {
	m := r.Msg
	shard, last, after := sharding.ShardID(1), sharding.ShardID(s.Entities.Shards()), journal.ItemID{}
	if only := sharding.ShardID(m.GetShardId()); only > last {
		return nil, status.Public(s.Log, status.Argument("the shard does not exist"))
	} else if only > 0 {
		shard, last = only, only
	}
	if m.GetPageToken() != "" {
		var err error
		if shard, after, err = parseDeadLetterID(m.GetPageToken()); err != nil || shard < 1 || shard > last {
			return nil, status.Public(s.Log, page.ErrToken)
		}
	}
	size := min(int(m.GetPageSize()), maxDeadLetters)
	if size == 0 {
		size = defaultPageSize
	} else if leaderproxy.FromPeer(ctx) {
		size = int(m.GetPageSize())
	}
	if s.DeadLetters == nil {
		return nil, status.Public(s.Log, request.ErrUnsupported)
	}
	out := &entityv1.ListDeadLettersResponse{}
	room := page.NewRoom(size)
	for ; shard <= last; shard, after = shard+1, (journal.ItemID{}) {
		full, limit := room.Full(), room.Items()
		if full {
			limit = 1 // look for one more letter, to find out whether there is another page
		}
		found, more, err := s.deadLettersOf(ctx, shard, after, limit, room.Bytes())
		if err != nil {
			return nil, status.Public(s.Log, err)
		}
		if full && len(found) > 0 {
			out.NextPageToken = deadLetterID(shard, after)
			break
		}
		out.Letters = append(out.Letters, found...)
		for _, l := range found {
			room.Take(l)
		}
		if more && len(found) > 0 {
			out.NextPageToken = found[len(found)-1].GetId()
			break
		}
	}
	return connect.NewResponse(out), nil
}

// deadLettersOf lists dead letters of a shard, on the node that leads it.
func (s *handler) deadLettersOf(ctx context.Context, shard sharding.ShardID, after journal.ItemID, limit, bytes int) (found []*entityv1.DeadLetter, more bool, err error) {
	res, err := leaderproxy.Do(ctx, s.Proxy, shard,
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.ListDeadLettersResponse], error) {
			if leader != nil {
				m := &entityv1.ListDeadLettersRequest{ShardId: uint32(shard), PageSize: uint32(limit)}
				if after != (journal.ItemID{}) {
					m.PageToken = deadLetterID(shard, after)
				}
				return leader.ListDeadLetters(ctx, connect.NewRequest(m))
			}
			found, more, err := s.DeadLetters.List(ctx, shard, after, limit, bytes)
			out := &entityv1.ListDeadLettersResponse{}
			for i := range found {
				out.Letters = append(out.Letters, s.deadLetter(shard, &found[i]))
			}
			if more {
				out.NextPageToken = deadLetterID(shard, after)
			}
			return connect.NewResponse(out), err
		})
	if err != nil {
		return nil, false, err
	}
	return res.Msg.GetLetters(), res.Msg.GetNextPageToken() != "", nil
}

func (s *handler) deadLetter(shard sharding.ShardID, l *journal.DeadLetter) *entityv1.DeadLetter {
	return &entityv1.DeadLetter{
		Id: deadLetterID(shard, l.ID), ShardId: uint32(shard), SourceType: l.Source.Type, SourceId: l.Source.ID,
		EntityType: l.Destination.Type, EntityId: l.Destination.ID, Command: l.Command, Data: l.Payload,
		Code: l.Code, Message: l.Message, RejectedAt: timestamppb.New(time.Unix(0, l.At)), Number: l.Number,
	}
}

// RetryDeadLetter delivers a dead letter again.
func (s *handler) RetryDeadLetter(ctx context.Context, r *connect.Request[entityv1.RetryDeadLetterRequest]) (*connect.Response[entityv1.RetryDeadLetterResponse], error) {
	err := s.withDeadLetter(ctx, r.Msg.GetId(), func(ctx context.Context, shard sharding.ShardID, id journal.ItemID, leader entityv1connect.EntityServiceClient) error {
		if leader != nil {
			_, err := leader.RetryDeadLetter(ctx, connect.NewRequest(r.Msg))
			return err
		}
		return s.DeadLetters.Retry(ctx, shard, id)
	})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&entityv1.RetryDeadLetterResponse{}), nil
}

// DiscardDeadLetter removes a dead letter.
func (s *handler) DiscardDeadLetter(ctx context.Context, r *connect.Request[entityv1.DiscardDeadLetterRequest]) (*connect.Response[entityv1.DiscardDeadLetterResponse], error) {
	err := s.withDeadLetter(ctx, r.Msg.GetId(), func(ctx context.Context, shard sharding.ShardID, id journal.ItemID, leader entityv1connect.EntityServiceClient) error {
		if leader != nil {
			_, err := leader.DiscardDeadLetter(ctx, connect.NewRequest(r.Msg))
			return err
		}
		return s.DeadLetters.Discard(ctx, shard, id)
	})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&entityv1.DiscardDeadLetterResponse{}), nil
}

// withDeadLetter calls do with the node that leads the shard of a dead letter,
// if the caller may administer the cluster.
func (s *handler) withDeadLetter(ctx context.Context, name string,
	do func(context.Context, sharding.ShardID, journal.ItemID, entityv1connect.EntityServiceClient) error) error {
	if !s.Admin && !authorize.AllowedByRoles(ctx) && !leaderproxy.FromPeer(ctx) {
		return status.ErrAdminOff
	}
	shard, id, err := parseDeadLetterID(name)
	if err != nil {
		return err
	}
	if shard < 1 || uint32(shard) > s.Entities.Shards() {
		return errNoDeadLetter
	}
	if s.DeadLetters == nil {
		return request.ErrUnsupported
	}
	_, err = leaderproxy.Do(ctx, s.Proxy, shard, func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*struct{}, error) {
		return &struct{}{}, do(ctx, shard, id, leader)
	})
	return err
}
