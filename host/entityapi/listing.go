package entityapi

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// aheadShards is how many shards a listing asks concurrently if other nodes lead
// them.
const aheadShards = 8

type entry = entityv1.ListEntitiesResponse_Entity

// listing reads the shards of one page of a listing, each on the node that leads
// it. It must be used by one goroutine.
type listing struct {
	service *handler
	request *entityv1.ListEntitiesRequest
	last    sharding.ShardID
	ahead   map[sharding.ShardID]shardPage // prefetched pages
}

// shardPage is the part of a page that comes from one shard.
type shardPage struct {
	entries []*entry
	next    string // the id after which to continue in the shard; empty at its end
	err     error
}

// entities returns up to limit entities of a shard after a position. If
// prefetching has returned more, the rest is dropped.
func (l *listing) entities(ctx context.Context, at position, limit int) shardPage {
	page, ok := l.ahead[at.shard]
	if !ok {
		l.ask(ctx, at, limit)
		page = l.ahead[at.shard]
	}
	if len(page.entries) > limit {
		page.entries = page.entries[:limit]
		page.next = page.entries[limit-1].GetEntityId()
	}
	return page
}

// ask asks a shard and, if other nodes lead shards, prefetches some of the
// shards after it.
func (l *listing) ask(ctx context.Context, at position, limit int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := sharding.ShardID(1)
	if !l.service.Proxy.Alone() {
		n = min(aheadShards, l.last-at.shard+1)
	}
	pages := make([]shardPage, n)
	var all sync.WaitGroup
	for i := range pages[1:] {
		all.Go(func() { pages[i+1] = l.shard(ctx, position{shard: at.shard + sharding.ShardID(i) + 1}, limit) })
	}
	pages[0] = l.shard(ctx, at, limit)
	all.Wait()
	l.ahead = make(map[sharding.ShardID]shardPage, n)
	for i, page := range pages {
		l.ahead[at.shard+sharding.ShardID(i)] = page
	}
}

func (l *listing) shard(ctx context.Context, at position, limit int) shardPage {
	m := &entityv1.ListEntitiesRequest{
		EntityType: l.request.GetEntityType(), IdPrefix: l.request.GetIdPrefix(), ResidentOnly: l.request.GetResidentOnly(),
		ShardId: uint32(at.shard), PageSize: uint32(limit), Status: statusToPeer(l.request.GetStatus()),
	}
	if at.after != "" {
		m.PageToken = at.token(filterHash(m))
	}
	var local *shardPage
	res, err := leaderproxy.Do(ctx, l.service.Proxy, at.shard,
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.ListEntitiesResponse], error) {
			if leader != nil {
				local = nil
				return leader.ListEntities(ctx, connect.NewRequest(m))
			}
			page, err := l.service.listLocal(ctx, at, m)
			local = &page
			return connect.NewResponse(&entityv1.ListEntitiesResponse{}), err
		})
	if err != nil {
		return shardPage{err: err}
	}
	if local != nil {
		return *local
	}
	page := shardPage{entries: res.Msg.GetEntities()}
	for _, e := range page.entries {
		e.Status = statusFromPeer(e.GetStatus())
	}
	if token := res.Msg.GetNextPageToken(); token != "" {
		next, err := parseToken(token, filterHash(m), at.shard, at.shard)
		if err != nil {
			return shardPage{err: errors.New("another node returned a malformed page token")}
		}
		page.next = next.after
	}
	return page
}

// statusQuarantined is the status of an entity that does not run for a while
// after repeated faults. Between nodes it is peerStatusQuarantined, because
// nodes of the previous release know no other name.
const (
	statusQuarantined     = "quarantined"
	peerStatusQuarantined = "parked"
)

// statusToPeer returns the name of a status in a request to a different node.
func statusToPeer(status string) string {
	if status == statusQuarantined {
		return peerStatusQuarantined
	}
	return status
}

// statusFromPeer is the inverse of statusToPeer.
func statusFromPeer(status string) string {
	if status == peerStatusQuarantined {
		return statusQuarantined
	}
	return status
}

// statusOf returns the name of a status in a response. If another node, which
// may be of the previous release, forwarded the call, that is the name that
// nodes use between each other.
func statusOf(ctx context.Context, status string) string {
	if leaderproxy.FromPeer(ctx) {
		return statusToPeer(status)
	}
	return statusFromPeer(status)
}

// listLocal lists entities of a shard that this node leads.
func (s *handler) listLocal(ctx context.Context, at position, m *entityv1.ListEntitiesRequest) (shardPage, error) {
	found, err := s.Entities.List(ctx, at.shard, EntityQuery{
		Type: m.GetEntityType(), IDPrefix: m.GetIdPrefix(), ResidentOnly: m.GetResidentOnly(), Status: statusFromPeer(m.GetStatus()),
		After: at.after, Limit: int(m.GetPageSize()),
	})
	page := shardPage{entries: make([]*entry, len(found.Entities)), next: found.Next}
	for i, e := range found.Entities {
		page.entries[i] = &entry{EntityId: e.ID, Sequence: uint64(e.Sequence), Status: e.Status, Resident: e.Resident}
		if t := e.Takeover; t != nil {
			page.entries[i].Takeover = &entityv1.ListEntitiesResponse_Takeover{
				Sequence: uint64(t.Sequence), ModuleDigest: t.Before.String(), SnapshotSequence: uint64(t.Snapshot), SnapshotDigest: t.By.String(),
			}
		}
	}
	return page, err
}

// pageBeginnings limits how many id prefixes one page looks up.
const pageBeginnings = 4

// listVisible lists one page of the entities whose ids have one of the visible
// prefixes. It reads no other entities, so neither the page nor its token
// reveals whether others exist. A token contains a hash of the prefixes, so it
// is rejected if they change with the caller's roles.
func (s *handler) listVisible(ctx context.Context, m *entityv1.ListEntitiesRequest, visible []string) (*connect.Response[entityv1.ListEntitiesResponse], error) {
	rules := fnv.New32a()
	for _, v := range visible {
		_, _ = rules.Write(append([]byte(v), 0))
	}
	at, inner := 0, ""
	if token := m.GetPageToken(); token != "" {
		b, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || len(b) < 5 || binary.BigEndian.Uint32(b) != rules.Sum32() || int(b[4]) >= len(visible) {
			return nil, status.Public(s.Log, status.Argument("the page token does not belong to this list, or the caller's permissions have changed: start again"))
		}
		at, inner = int(b[4]), string(b[5:])
	}
	size := int(m.GetPageSize())
	if size == 0 {
		size = defaultPageSize
	}
	out := &entityv1.ListEntitiesResponse{}
	for range pageBeginnings {
		one := proto.CloneOf(m)
		one.IdPrefix, one.PageToken, one.PageSize = visible[at], inner, uint32(size-len(out.Entities))
		page, err := s.list(ctx, one)
		if err != nil {
			return nil, err
		}
		out.Entities = append(out.Entities, page.Msg.GetEntities()...)
		if inner = page.Msg.GetNextPageToken(); inner != "" {
			break
		}
		if at++; at == len(visible) || len(out.Entities) == size {
			break
		}
	}
	if at < len(visible) {
		b := append(binary.BigEndian.AppendUint32(nil, rules.Sum32()), byte(at))
		out.NextPageToken = base64.RawURLEncoding.EncodeToString(append(b, inner...))
	}
	return connect.NewResponse(out), nil
}
