package entityapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// errMessagePageFull stops the reading of a shard at the end of a page.
var errMessagePageFull = errors.New("enough sends")

// messagePlace is where a listing of messages continues: after an item of a
// shard.
type messagePlace struct {
	shard sharding.ShardID
	after journal.ItemID
}

func (p messagePlace) token() string {
	return fmt.Sprintf("%d-%d-%d-%d", p.shard, p.after.Index, p.after.Ordinal, p.after.Item)
}

func parseSendToken(token string) (p messagePlace, err error) {
	n, err := fmt.Sscanf(token, "%d-%d-%d-%d", &p.shard, &p.after.Index, &p.after.Ordinal, &p.after.Item)
	if err != nil || n != 4 || p.token() != token {
		return p, status.Argument("the page token does not belong to this list")
	}
	return p, nil
}

// ListMessages returns a page of messages that are not acknowledged yet.
func (s *handler) ListMessages(ctx context.Context, r *connect.Request[entityv1.ListMessagesRequest]) (*connect.Response[entityv1.ListMessagesResponse], error) {
	out, err := s.listMessages(ctx, r.Msg)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(out), nil
}

func (s *handler) listMessages(ctx context.Context, m *entityv1.ListMessagesRequest) (*entityv1.ListMessagesResponse, error) {
	if s.Pending == nil {
		return nil, request.ErrUnsupported
	}
	if err := s.checkType(ctx, m.GetEntityType()); err != nil {
		return nil, err
	}
	at, last := messagePlace{shard: 1}, sharding.ShardID(s.Entities.Shards())
	if m.GetEntityId() != "" {
		id := sharding.EntityID{Type: m.GetEntityType(), ID: m.GetEntityId()}
		if err := id.Validate(); err != nil {
			return nil, err
		}
		at.shard = s.Entities.ShardOf(id)
		last = at.shard
	}
	if m.GetPageToken() != "" {
		first := at.shard
		var err error
		if at, err = parseSendToken(m.GetPageToken()); err != nil {
			return nil, err
		}
		if at.shard < first || at.shard > last {
			return nil, page.ErrToken
		}
	}
	if leaderproxy.FromPeer(ctx) {
		last = at.shard // a forwarded call reads one shard only
	}
	room := page.NewRoom(timerPageSize(m.GetPageSize()))
	out := &entityv1.ListMessagesResponse{}
	for n := 0; at.shard <= last; n++ {
		if n == scannedShards || room.Full() {
			out.NextPageToken = at.token()
			break
		}
		found, err := s.sendsOf(ctx, m, at, room.Items())
		if err != nil {
			return nil, err
		}
		for _, sent := range found.GetMessages() {
			room.Take(sent)
			out.Messages = append(out.Messages, sent)
		}
		if found.GetNextPageToken() != "" {
			out.NextPageToken = found.GetNextPageToken()
			break
		}
		at = messagePlace{shard: at.shard + 1}
	}
	return out, nil
}

// sendsOf returns a page of one shard's sends, from the node that leads it.
func (s *handler) sendsOf(ctx context.Context, m *entityv1.ListMessagesRequest, at messagePlace, size int) (*entityv1.ListMessagesResponse, error) {
	return leaderproxy.Do(ctx, s.Proxy, at.shard, func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*entityv1.ListMessagesResponse, error) {
		if leader == nil {
			return s.ownMessages(ctx, m, at, size)
		}
		res, err := leader.ListMessages(ctx, connect.NewRequest(&entityv1.ListMessagesRequest{
			EntityType: m.GetEntityType(), EntityId: m.GetEntityId(), PageSize: uint32(size), PageToken: at.token(),
		}))
		if connect.CodeOf(err) == connect.CodeUnimplemented {
			err = errMessagesNotListed
		}
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	})
}

// sendsPerRead is the number of sends after which one read of a shard may end
// although there are more: a source returns at most this many of the newest
// sends at once.
const sendsPerRead = 4096

// ownMessages returns a page of the messages of a shard that this node leads.
func (s *handler) ownMessages(ctx context.Context, m *entityv1.ListMessagesRequest, at messagePlace, size int) (*entityv1.ListMessagesResponse, error) {
	out := &entityv1.ListMessagesResponse{}
	looked, room := 0, page.NewRoom(size)
	err := s.Pending.Sends(ctx, at.shard, at.after, func(sent *journal.Message) error {
		if looked == scannedPending || room.Full() {
			out.NextPageToken = at.token()
			return errMessagePageFull
		}
		looked++
		at.after = sent.ID
		if m.GetEntityType() != "" && sent.Source.Type != m.GetEntityType() || m.GetEntityId() != "" && sent.Source.ID != m.GetEntityId() {
			return nil
		}
		pending := &entityv1.ListMessagesResponse_PendingMessage{
			ShardId: uint32(at.shard), SourceType: sent.Source.Type, SourceId: sent.Source.ID, EntityType: sent.Destination.Type, EntityId: sent.Destination.ID,
			Number: sent.Number, Command: sent.Command, Data: slices.Clone(sent.Payload[:min(len(sent.Payload), shownMessageBytes)]), OnReply: sent.OnReply,
			SentAt: timestamppb.New(time.Unix(0, sent.At)),
		}
		out.Messages = append(out.Messages, pending)
		room.Take(pending)
		return nil
	})
	if err != nil && !errors.Is(err, errMessagePageFull) {
		return nil, err
	}
	if err == nil && looked >= sendsPerRead {
		out.NextPageToken = at.token()
	}
	return out, nil
}
