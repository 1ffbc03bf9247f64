package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Letters are the dead letters of the shards that this node leads.
type Letters interface {
	// List returns up to limit dead letters of a shard after one, in the order
	// in which they became some; the zero id is before the first.
	List(ctx context.Context, shard sharding.ShardID, after journal.ItemID, limit int) ([]journal.Letter, error)
	// Retry has a dead letter delivered again, or sent again where it never had
	// a destination. It fails with ErrNoLetter, or as the entity decides.
	Retry(ctx context.Context, shard sharding.ShardID, id journal.ItemID) error
	// Discard ends a dead letter. It fails with ErrNoLetter.
	Discard(ctx context.Context, shard sharding.ShardID, id journal.ItemID) error
}

// ErrNoLetter: there is no such dead letter, or not any more.
var ErrNoLetter = errors.New("there is no such dead letter; hostd entity deadletters ls lists them")

// letterID names a dead letter to callers: its shard, and its id there.
func letterID(shard sharding.ShardID, id journal.ItemID) string {
	return fmt.Sprintf("%d-%d-%d-%d", shard, id.Index, id.Ordinal, id.Item)
}

func parseLetterID(s string) (shard sharding.ShardID, id journal.ItemID, err error) {
	if n, err := fmt.Sscanf(s, "%d-%d-%d-%d", &shard, &id.Index, &id.Ordinal, &id.Item); err != nil || n != 4 || letterID(shard, id) != s {
		return 0, id, &argumentError{"the id is not that of a dead letter"}
	}
	return shard, id, nil
}

// maxLetters is the largest page of dead letters. Between nodes one more is
// asked for, which tells whether there is another page.
const maxLetters = 500

// ListDeadLetters lists one page, shard after shard.
func (s *entityService) ListDeadLetters(ctx context.Context, r *connect.Request[entityv1.ListDeadLettersRequest]) (*connect.Response[entityv1.ListDeadLettersResponse], error) {
	m := r.Msg
	shard, last, after := sharding.ShardID(1), sharding.ShardID(s.deps.Entities.Shards()), journal.ItemID{}
	if only := sharding.ShardID(m.GetShardId()); only > last {
		return nil, publicError(s.log, &argumentError{"there is no such shard"})
	} else if only > 0 {
		shard, last = only, only
	}
	if m.GetPageToken() != "" {
		var err error
		if shard, after, err = parseLetterID(m.GetPageToken()); err != nil || shard < 1 || shard > last {
			return nil, publicError(s.log, &argumentError{"the page token is not one of this listing"})
		}
	}
	size := min(int(m.GetPageSize()), maxLetters)
	if size == 0 {
		size = defaultPageSize
	} else if Hopped(ctx) {
		size = int(m.GetPageSize())
	}
	if s.deps.Letters == nil {
		return nil, publicError(s.log, entity.ErrUnsupported)
	}
	out := &entityv1.ListDeadLettersResponse{}
	for ; shard <= last; shard, after = shard+1, (journal.ItemID{}) {
		page, err := s.letters(ctx, shard, after, size-len(out.Letters)+1)
		if err != nil {
			return nil, publicError(s.log, err)
		}
		if full := size - len(out.Letters); len(page) > full {
			out.Letters = append(out.Letters, page[:full]...)
			out.NextPageToken = letterID(shard, journal.ItemID{})
			if full > 0 {
				out.NextPageToken = page[full-1].GetId()
			}
			break
		}
		out.Letters = append(out.Letters, page...)
	}
	return connect.NewResponse(out), nil
}

// letters lists dead letters of a shard, wherever it is led.
func (s *entityService) letters(ctx context.Context, shard sharding.ShardID, after journal.ItemID, limit int) ([]*entityv1.DeadLetter, error) {
	res, err := atLeader(ctx, &s.elsewhere, shard,
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.ListDeadLettersResponse], error) {
			if leader != nil {
				m := &entityv1.ListDeadLettersRequest{ShardId: uint32(shard), PageSize: uint32(limit)}
				if after != (journal.ItemID{}) {
					m.PageToken = letterID(shard, after)
				}
				return leader.ListDeadLetters(ctx, connect.NewRequest(m))
			}
			found, err := s.deps.Letters.List(ctx, shard, after, limit)
			out := &entityv1.ListDeadLettersResponse{}
			for i := range found {
				out.Letters = append(out.Letters, s.letter(shard, &found[i]))
			}
			return connect.NewResponse(out), err
		})
	if err != nil {
		return nil, err
	}
	return res.Msg.GetLetters(), nil
}

func (s *entityService) letter(shard sharding.ShardID, l *journal.Letter) *entityv1.DeadLetter {
	return &entityv1.DeadLetter{
		Id: letterID(shard, l.ID), ShardId: uint32(shard), SourceType: l.Source.Type, SourceId: l.Source.ID,
		EntityType: l.Destination.Type, EntityId: l.Destination.ID, Command: l.Command, Data: l.Payload,
		Code: l.Code, Message: l.Message, RefusedAt: timestamppb.New(time.Unix(0, l.At)), Number: l.Number,
	}
}

// RetryDeadLetter has a dead letter delivered again.
func (s *entityService) RetryDeadLetter(ctx context.Context, r *connect.Request[entityv1.RetryDeadLetterRequest]) (*connect.Response[entityv1.RetryDeadLetterResponse], error) {
	err := s.withLetter(ctx, r.Msg.GetId(), func(ctx context.Context, shard sharding.ShardID, id journal.ItemID, leader entityv1connect.EntityServiceClient) error {
		if leader != nil {
			_, err := leader.RetryDeadLetter(ctx, connect.NewRequest(r.Msg))
			return err
		}
		return s.deps.Letters.Retry(ctx, shard, id)
	})
	if err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(&entityv1.RetryDeadLetterResponse{}), nil
}

// DiscardDeadLetter ends a dead letter.
func (s *entityService) DiscardDeadLetter(ctx context.Context, r *connect.Request[entityv1.DiscardDeadLetterRequest]) (*connect.Response[entityv1.DiscardDeadLetterResponse], error) {
	err := s.withLetter(ctx, r.Msg.GetId(), func(ctx context.Context, shard sharding.ShardID, id journal.ItemID, leader entityv1connect.EntityServiceClient) error {
		if leader != nil {
			_, err := leader.DiscardDeadLetter(ctx, connect.NewRequest(r.Msg))
			return err
		}
		return s.deps.Letters.Discard(ctx, shard, id)
	})
	if err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(&entityv1.DiscardDeadLetterResponse{}), nil
}

// withLetter calls do where the shard of a dead letter is led. Only those who
// may change the cluster get so far.
func (s *entityService) withLetter(ctx context.Context, name string,
	do func(context.Context, sharding.ShardID, journal.ItemID, entityv1connect.EntityServiceClient) error) error {
	if !s.admin && !Hopped(ctx) {
		return errReadOnly
	}
	shard, id, err := parseLetterID(name)
	if err != nil {
		return err
	}
	if shard < 1 || uint32(shard) > s.deps.Entities.Shards() {
		return ErrNoLetter
	}
	if s.deps.Letters == nil {
		return entity.ErrUnsupported
	}
	_, err = atLeader(ctx, &s.elsewhere, shard, func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*struct{}, error) {
		return &struct{}{}, do(ctx, shard, id, leader)
	})
	return err
}
