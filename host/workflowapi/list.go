package workflowapi

import (
	"cmp"
	"context"
	"encoding/binary"
	"strconv"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// defaultPageSize is the page size if the caller sets none.
	defaultPageSize = 100
	// pageShards limits how many shards one page asks, so that a listing of few
	// runs in many shards answers in time.
	pageShards = 64
)

// ListWorkflows lists one page of the runs of a type: one shard after the other, and by
// id within a shard. If the caller may see only ids with some prefixes, these
// are listed one after the other, and nothing else is read.
func (h *Handler) ListWorkflows(ctx context.Context, r *connect.Request[workflowv1.ListWorkflowsRequest]) (*connect.Response[workflowv1.ListWorkflowsResponse], error) {
	out, err := h.list(ctx, r.Msg)
	if err != nil {
		return nil, status.Public(h.Log, err)
	}
	return connect.NewResponse(out), nil
}

func (h *Handler) list(ctx context.Context, m *workflowv1.ListWorkflowsRequest) (*workflowv1.ListWorkflowsResponse, error) {
	if err := h.check(ctx, m.GetEntityType()); err != nil {
		return nil, err
	}
	if m.GetShardId() > h.Shards.Shards() {
		return nil, status.Argument("there is no such shard")
	}
	l := listing{h: h, request: m, prefixes: authorize.VisiblePrefixes(ctx)}
	if len(l.prefixes) == 0 {
		l.prefixes = []string{m.GetIdPrefix()}
	}
	return l.page(ctx)
}

// page returns the page after the token of the request.
func (l *listing) page(ctx context.Context) (*workflowv1.ListWorkflowsResponse, error) {
	m := l.request
	at, err := l.parse(m.GetPageToken())
	if err != nil {
		return nil, err
	}
	out, room := &workflowv1.ListWorkflowsResponse{}, page.NewRoom(int(cmp.Or(m.GetPageSize(), defaultPageSize)))
	for asked := 0; at.prefix < len(l.prefixes); asked++ {
		if asked == pageShards || room.Full() {
			out.NextPageToken = l.token(at)
			break
		}
		runs, next, err := l.ask(ctx, at, room.Items())
		if err != nil {
			return nil, err
		}
		for i, r := range runs {
			if room.Full() {
				runs, next = runs[:i], runs[i-1].GetEntityId()
				break
			}
			room.Take(r)
		}
		out.Runs = append(out.Runs, runs...)
		if next != "" {
			at.after = next
		} else {
			at = l.next(at)
		}
	}
	return out, nil
}

// listing reads the shards of one page of a listing, each on the node that leads
// it.
type listing struct {
	h        *Handler
	request  *workflowv1.ListWorkflowsRequest
	prefixes []string // prefixes of ids; at least one
}

// place is a position in a listing. The listing continues with the ids of the
// shard that are greater than after and begin with prefixes[prefix].
type place struct {
	prefix int
	shard  sharding.ShardID
	after  string
}

// shards returns the shards that may have runs with a prefix.
func (l *listing) shards(prefix int) (first, last sharding.ShardID) {
	first, last = 1, sharding.ShardID(l.h.Shards.Shards())
	if one := sharding.ShardID(l.request.GetShardId()); one != 0 {
		first, last = one, one
	}
	if one, ok := l.h.Shards.ShardOfPrefix(l.request.GetEntityType(), l.prefixes[prefix]); ok {
		first, last = max(first, one), min(last, one)
	}
	return first, last
}

// next returns the place after the end of a shard.
func (l *listing) next(at place) place {
	if _, last := l.shards(at.prefix); at.shard < last {
		return place{prefix: at.prefix, shard: at.shard + 1}
	}
	return l.first(at.prefix + 1)
}

// first returns the first place of a prefix. If no shard has that prefix, it
// returns the first place of the next prefix.
func (l *listing) first(prefix int) place {
	for ; prefix < len(l.prefixes); prefix++ {
		if first, last := l.shards(prefix); first <= last {
			return place{prefix: prefix, shard: first}
		}
	}
	return place{prefix: prefix}
}

// filter returns a hash of the selected type, state and prefixes, so that
// tokens of different listings differ. It includes the visible prefixes, which
// change with the caller's roles.
func (l *listing) filter() uint32 {
	m := l.request
	return page.Filter(append([]string{m.GetEntityType(), m.GetStatus().String(), strconv.Itoa(int(m.GetShardId()))}, l.prefixes...)...)
}

// token encodes a place as an opaque token.
func (l *listing) token(at place) string {
	b := binary.BigEndian.AppendUint32([]byte{byte(at.prefix)}, uint32(at.shard))
	return page.Token(l.filter(), append(b, at.after...))
}

// parse decodes a token; an empty one is the beginning.
func (l *listing) parse(token string) (place, error) {
	if token == "" {
		return l.first(0), nil
	}
	b, err := page.Parse(token, l.filter())
	if err != nil || len(b) < 5 || int(b[0]) >= len(l.prefixes) {
		return place{}, page.ErrToken
	}
	at := place{prefix: int(b[0]), shard: sharding.ShardID(binary.BigEndian.Uint32(b[1:])), after: string(b[5:])}
	if first, last := l.shards(at.prefix); at.shard < first || at.shard > last || at.after != "" && sharding.ValidateID(at.after) != nil {
		return place{}, page.ErrToken
	}
	return at, nil
}

// ask returns up to limit runs of a shard after a place, and the id after which
// to continue in the shard.
func (l *listing) ask(ctx context.Context, at place, limit int) (runs []*workflowv1.Run, next string, err error) {
	m := &workflowv1.ListWorkflowsRequest{
		EntityType: l.request.GetEntityType(), IdPrefix: l.prefixes[at.prefix], Status: l.request.GetStatus(), ShardId: uint32(at.shard), PageSize: uint32(limit),
	}
	one := listing{h: l.h, request: m, prefixes: []string{m.IdPrefix}}
	if at.after != "" {
		m.PageToken = one.token(place{shard: at.shard, after: at.after})
	}
	res, err := leaderproxy.DoWorkflow(ctx, l.h.Proxy, at.shard, func(ctx context.Context, leader workflowv1connect.WorkflowServiceClient) (*workflowv1.ListWorkflowsResponse, error) {
		if leader != nil {
			res, err := leader.ListWorkflows(ctx, connect.NewRequest(m))
			if err != nil {
				return nil, err
			}
			return res.Msg, nil
		}
		found, err := l.h.Runs.ListRuns(ctx, at.shard, entityapi.RunQuery{
			Type: m.GetEntityType(), IDPrefix: m.GetIdPrefix(), State: stateOf(m.GetStatus()), After: at.after, Limit: limit,
		})
		out := &workflowv1.ListWorkflowsResponse{}
		for i := range found.Runs {
			out.Runs = append(out.Runs, message(&found.Runs[i]))
		}
		if found.Next != "" {
			out.NextPageToken = one.token(place{shard: at.shard, after: found.Next})
		}
		return out, err
	})
	if err != nil || res.GetNextPageToken() == "" {
		return res.GetRuns(), "", err
	}
	to, err := one.parse(res.GetNextPageToken())
	return res.GetRuns(), to.after, err
}

func stateOf(s workflowv1.RunStatus) journal.RunState {
	switch s {
	case workflowv1.RunStatus_RUNNING:
		return journal.RunRunning
	case workflowv1.RunStatus_COMPLETED:
		return journal.RunCompleted
	case workflowv1.RunStatus_FAILED:
		return journal.RunFailed
	}
	return 0
}

// GetWorkflowHistory returns one page of the events of a run.
func (h *Handler) GetWorkflowHistory(ctx context.Context, r *connect.Request[workflowv1.GetWorkflowHistoryRequest]) (*connect.Response[workflowv1.GetWorkflowHistoryResponse], error) {
	m := r.Msg
	if err := h.check(ctx, m.GetEntityType()); err != nil {
		return nil, status.Public(h.Log, err)
	}
	res, err := h.Entities.ReadRecords(ctx, connect.NewRequest(&entityv1.ReadRecordsRequest{
		EntityType: m.GetEntityType(), EntityId: m.GetEntityId(), NewestFirst: m.GetNewestFirst(), PageSize: m.GetPageSize(), PageToken: m.GetPageToken(),
	}))
	if err != nil {
		return nil, status.Public(h.Log, err)
	}
	if len(res.Msg.GetRecords()) == 0 && m.GetPageToken() == "" && res.Msg.GetNextPageToken() == "" {
		return nil, status.Public(h.Log, errNotFound)
	}
	out := &workflowv1.GetWorkflowHistoryResponse{NextPageToken: res.Msg.GetNextPageToken()}
	for _, rec := range res.Msg.GetRecords() {
		events := make([]*workflowv1.GetWorkflowHistoryResponse_Event, len(rec.GetEvents()))
		for i, e := range rec.GetEvents() {
			at := i
			if m.GetNewestFirst() {
				at = len(events) - 1 - i
			}
			events[at] = &workflowv1.GetWorkflowHistoryResponse_Event{
				Sequence: e.GetSequence(), EventType: e.GetEventType(), RecordedAt: rec.GetRecordedAt(), Payload: e.GetJson(), ModuleDigest: rec.GetModuleDigest(),
			}
		}
		out.Events = append(out.Events, events...)
	}
	return connect.NewResponse(out), nil
}
