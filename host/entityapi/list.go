package entityapi

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// defaultPageSize is the page size if the caller sets none.
const defaultPageSize = 100

// GetEntity describes an entity.
func (s *handler) GetEntity(ctx context.Context, r *connect.Request[entityv1.GetEntityRequest]) (*connect.Response[entityv1.GetEntityResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	if err := id.Validate(); err != nil {
		return nil, status.Public(s.Log, err)
	}
	if _, err := s.Types.Encoding(ctx, id.Type); err != nil {
		return nil, status.Public(s.Log, err)
	}
	res, err := leaderproxy.Do(ctx, s.Proxy, s.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.GetEntityResponse], error) {
			if leader != nil {
				return leader.GetEntity(ctx, connect.NewRequest(r.Msg))
			}
			return s.getEntity(ctx, id)
		})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	res.Msg.Status = statusOf(ctx, res.Msg.GetStatus())
	return connect.NewResponse(res.Msg), nil
}

// getEntity describes an entity whose shard this node leads.
func (s *handler) getEntity(ctx context.Context, id sharding.EntityID) (*connect.Response[entityv1.GetEntityResponse], error) {
	info, err := s.Entities.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &entityv1.GetEntityResponse{
		Status:           info.Status,
		Sequence:         uint64(info.Sequence),
		SnapshotSequence: uint64(info.SnapshotSequence),
		ShardId:          uint32(info.Shard),
		NodeId:           string(info.Node),
		Resident:         info.Resident,
		StateBytes:       info.StateBytes,
		LastError:        info.LastError,
		Faults:           uint32(info.Faults),
		Fuel:             info.Fuel,
		PendingMessages:  info.PendingMessages,
	}
	if !info.QuarantinedUntil.IsZero() {
		out.QuarantinedUntil = timestamppb.New(info.QuarantinedUntil)
	}
	for i := range info.Actions {
		a := &info.Actions[i]
		out.OperatorActions = append(out.OperatorActions, &entityv1.OperatorAction{
			Kind: a.Kind, Timer: a.Timer, CommandId: string(a.Command), RecordedAt: timestamppb.New(time.Unix(0, a.RecordedAt)), Sequence: uint64(a.Sequence),
		})
	}
	for _, t := range info.Timers {
		out.Timers = append(out.Timers, timerMessage(&t))
	}
	if info.Module != (journal.Digest{}) {
		out.ModuleDigest = info.Module.String()
	}
	return connect.NewResponse(out), nil
}

// ListEntities lists one page: one shard after the other, and by id within a
// shard. If the caller may see only entities with some id prefixes, these
// prefixes are listed one after the other.
func (s *handler) ListEntities(ctx context.Context, r *connect.Request[entityv1.ListEntitiesRequest]) (*connect.Response[entityv1.ListEntitiesResponse], error) {
	if visible := authorize.VisiblePrefixes(ctx); len(visible) > 0 {
		return s.listVisible(ctx, r.Msg, visible)
	}
	return s.list(ctx, r.Msg)
}

func (s *handler) list(ctx context.Context, m *entityv1.ListEntitiesRequest) (*connect.Response[entityv1.ListEntitiesResponse], error) {
	if _, err := s.Types.Encoding(ctx, m.GetEntityType()); err != nil {
		return nil, status.Public(s.Log, err)
	}
	if err := checkListing(ctx, m); err != nil {
		return nil, status.Public(s.Log, err)
	}
	at := position{shard: 1}
	last := sharding.ShardID(s.Entities.Shards())
	if m.GetShardId() != 0 {
		if m.GetShardId() > uint32(last) {
			return nil, status.Public(s.Log, status.Argument("the shard does not exist"))
		}
		at.shard = sharding.ShardID(m.GetShardId())
		last = at.shard
	}
	if shard, one := s.Entities.ShardOfPrefix(m.GetEntityType(), m.GetIdPrefix()); one {
		if shard < at.shard || shard > last {
			return connect.NewResponse(&entityv1.ListEntitiesResponse{}), nil
		}
		at.shard, last = shard, shard
	}
	if m.GetPageToken() != "" {
		var err error
		if at, err = parseToken(m.GetPageToken(), filterHash(m), at.shard, last); err != nil {
			return nil, status.Public(s.Log, err)
		}
	}
	size := int(m.GetPageSize())
	if size == 0 {
		size = defaultPageSize
	}
	out := &entityv1.ListEntitiesResponse{}
	pages := listing{service: s, request: m, last: last}
	for at.shard <= last && len(out.Entities) < size {
		page := pages.entities(ctx, at, size-len(out.Entities))
		if page.err != nil {
			return nil, status.Public(s.Log, page.err)
		}
		for _, e := range page.entries {
			e.Status = statusOf(ctx, e.GetStatus())
		}
		out.Entities = append(out.Entities, page.entries...)
		if page.next != "" {
			at.after = page.next
			break // the page is full, or the shard has examined enough entities for a page
		}
		at = position{shard: at.shard + 1}
	}
	if at.shard <= last {
		out.NextPageToken = at.token(filterHash(m))
	}
	return connect.NewResponse(out), nil
}

// checkListing rejects combinations of fields that the validation rules of the
// message allow.
func checkListing(ctx context.Context, m *entityv1.ListEntitiesRequest) error {
	switch s := m.GetStatus(); {
	case s == peerStatusQuarantined && !leaderproxy.FromPeer(ctx):
		return status.Argument("there is no status " + s + "; did you mean " + statusQuarantined + "?")
	case m.GetResidentOnly() && (s == "deleted" || s == "passivated"):
		return status.Argument("no entity is resident and " + s)
	case m.GetResidentOnly() && s == "unverified":
		return status.Argument("entities that are unverified are listed whether or not they are in memory")
	}
	return nil
}

// position is a place in a listing: after an id within a shard.
type position struct {
	shard sharding.ShardID
	after string
}

// token encodes the position as an opaque token, which is valid only with the
// same filter.
func (p position) token(filter uint32) string {
	return page.Token(filter, append(binary.BigEndian.AppendUint32(nil, uint32(p.shard)), p.after...))
}

func parseToken(token string, filter uint32, first, last sharding.ShardID) (position, error) {
	place, err := page.Parse(token, filter)
	if err != nil || len(place) < 4 {
		return position{}, page.ErrToken
	}
	p := position{shard: sharding.ShardID(binary.BigEndian.Uint32(place)), after: string(place[4:])}
	if p.shard < first || p.shard > last || p.after != "" && sharding.ValidateID(p.after) != nil {
		return position{}, page.ErrToken
	}
	return p, nil
}

// filterHash hashes the filter of a listing, so that tokens of different
// listings differ.
func filterHash(m *entityv1.ListEntitiesRequest) uint32 {
	h := fnv.New32a()
	var shard [5]byte
	binary.BigEndian.PutUint32(shard[:], m.GetShardId())
	if m.GetResidentOnly() {
		shard[4] = 1
	}
	h.Write(shard[:])
	h.Write([]byte(m.GetEntityType()))
	h.Write([]byte{0})
	h.Write([]byte(m.GetIdPrefix()))
	if status := m.GetStatus(); status != "" {
		h.Write([]byte{0})
		h.Write([]byte(status))
	}
	return h.Sum32()
}
