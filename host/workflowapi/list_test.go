package workflowapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// shards holds the runs of each shard. It returns at most two runs at a time.
type shards struct {
	runs map[sharding.ShardID]map[string]journal.RunState
	read []string // prefixes that were read

	lastError string // last error of each run
}

const atOnce = 2

func (s *shards) IsWorkflow(entityType string) bool { return entityType == "payout" }

func (s *shards) Run(_ context.Context, id sharding.EntityID) (entityapi.RunInfo, error) {
	return entityapi.RunInfo{ID: id, Status: journal.RunStatus{State: s.runs[s.ShardOf(id)][id.ID]}}, nil
}

func (s *shards) WatchRun(sharding.EntityID) (<-chan struct{}, func()) { return nil, func() {} }

func (s *shards) ListRuns(_ context.Context, shard sharding.ShardID, q entityapi.RunQuery) (out entityapi.RunPage, err error) {
	s.read = append(s.read, q.IDPrefix)
	var ids []string
	for id, state := range s.runs[shard] {
		if strings.HasPrefix(id, q.IDPrefix) && id > q.After && (q.State == 0 || q.State == state) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if most := min(q.Limit, atOnce); len(ids) > most {
		ids, out.Next = ids[:most], ids[most-1]
	}
	for _, id := range ids {
		out.Runs = append(out.Runs, entityapi.RunInfo{ID: sharding.EntityID{Type: q.Type, ID: id}, Status: journal.RunStatus{State: s.runs[shard][id]}, LastError: s.lastError})
	}
	return out, nil
}

func (s *shards) Shards() uint32 { return 5 }

func (s *shards) ShardOf(id sharding.EntityID) sharding.ShardID {
	return sharding.ShardID(len(id.ID)%5 + 1)
}

// ShardOfPrefix knows one prefix, all of whose ids are in shard 2.
func (s *shards) ShardOfPrefix(_, prefix string) (sharding.ShardID, bool) { return 2, prefix == "b" }

func (s *shards) Encoding(context.Context, string) (request.Encoding, error) {
	return request.JSON, nil
}

// testShards returns a handler with runs in five shards. Each shard has the
// runs a0 to a6, and the second one also has b0 to b3.
func testShards() (*shards, *Handler) {
	s := &shards{runs: map[sharding.ShardID]map[string]journal.RunState{}}
	for shard := sharding.ShardID(1); shard <= 5; shard++ {
		s.runs[shard] = map[string]journal.RunState{}
		for i := range 7 {
			s.runs[shard][fmt.Sprintf("a%d%d", i, shard)] = journal.RunState(1 + i%3)
		}
	}
	for i := range 4 {
		s.runs[2][fmt.Sprintf("b%d", i)] = journal.RunRunning
	}
	return s, NewHandler(Options{Runs: s, Shards: s, Types: s, Proxy: leaderproxy.New(nil)})
}

// TestListingHasEachRunOnce lists runs by prefixes, as for a caller who may see
// only these, in pages of different sizes. Each run must be on exactly one
// page, and nothing may be read beyond the prefixes.
func TestListingHasEachRunOnce(t *testing.T) {
	for _, prefixes := range [][]string{{""}, {"a"}, {"b"}, {"a1", "b", "nothing"}, {"a1", "a5"}} {
		for _, status := range []workflowv1.RunStatus{0, workflowv1.RunStatus_RUNNING, workflowv1.RunStatus_FAILED} {
			for _, size := range []uint32{1, 2, 3, 100} {
				s, h := testShards()
				var want, got []string
				for _, runs := range s.runs {
					for id, state := range runs {
						if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(id, p) }) && (status == 0 || state == stateOf(status)) {
							want = append(want, id)
						}
					}
				}
				req := &workflowv1.ListWorkflowsRequest{EntityType: "payout", Status: status, PageSize: size}
				for more := true; more; {
					l := listing{h: h, request: req, prefixes: prefixes}
					out, err := l.page(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if n := len(out.GetRuns()); n > int(size) {
						t.Errorf("a page of %d has %d runs", size, n)
					}
					for _, r := range out.GetRuns() {
						got = append(got, r.GetEntityId())
					}
					req.PageToken = out.GetNextPageToken()
					more = req.PageToken != ""
				}
				slices.Sort(want)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("prefixes %q, %v, pages of %d: %q, want %q", prefixes, status, size, got, want)
				}
				for _, p := range s.read {
					if !slices.Contains(prefixes, p) {
						t.Errorf("prefixes %q: the prefix %q was read", prefixes, p)
					}
				}
			}
		}
	}
}

// TestPagesAreLimitedInBytes lists runs with long errors. A page must end with
// the run that reaches the size limit, and the next page must continue after
// that run.
func TestPagesAreLimitedInBytes(t *testing.T) {
	s, h := testShards()
	s.lastError = strings.Repeat("x", page.Bytes/3)
	req, pages, seen := &workflowv1.ListWorkflowsRequest{EntityType: "payout"}, 0, map[string]bool{}
	for more := true; more; pages++ {
		l := listing{h: h, request: req, prefixes: []string{"a"}}
		out, err := l.page(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(out); size > page.Bytes+len(s.lastError)+1<<10 {
			t.Errorf("a page has %d bytes", size)
		}
		for _, r := range out.GetRuns() {
			if seen[r.GetEntityId()] {
				t.Errorf("%s is listed twice", r.GetEntityId())
			}
			seen[r.GetEntityId()] = true
		}
		req.PageToken = out.GetNextPageToken()
		more = req.PageToken != ""
	}
	if len(seen) != 5*7 || pages < 35/3 {
		t.Errorf("%d runs on %d pages", len(seen), pages)
	}
}

// TestTokensBelongToTheirListing checks that a token is rejected if it was
// changed, or comes from a listing with another filter or other visible
// prefixes.
func TestTokensBelongToTheirListing(t *testing.T) {
	_, h := testShards()
	l := listing{h: h, request: &workflowv1.ListWorkflowsRequest{EntityType: "payout", PageSize: 1}, prefixes: []string{"a1", "a2"}}
	out, err := l.page(t.Context())
	if err != nil || out.GetNextPageToken() == "" {
		t.Fatalf("%v, %v", out, err)
	}
	token := out.GetNextPageToken()
	for name, other := range map[string]listing{
		"other prefixes": {h: h, request: &workflowv1.ListWorkflowsRequest{EntityType: "payout", PageToken: token}, prefixes: []string{"a1"}},
		"another status": {h: h, request: &workflowv1.ListWorkflowsRequest{EntityType: "payout", PageToken: token, Status: workflowv1.RunStatus_FAILED}, prefixes: l.prefixes},
		"another shard":  {h: h, request: &workflowv1.ListWorkflowsRequest{EntityType: "payout", PageToken: token, ShardId: 2}, prefixes: l.prefixes},
		"no shard":       {h: h, request: &workflowv1.ListWorkflowsRequest{EntityType: "payout", PageToken: l.token(place{shard: 6})}, prefixes: l.prefixes},
		"no prefix":      {h: h, request: &workflowv1.ListWorkflowsRequest{EntityType: "payout", PageToken: l.token(place{prefix: 2, shard: 1})}, prefixes: l.prefixes},
		"no token":       {h: h, request: &workflowv1.ListWorkflowsRequest{EntityType: "payout", PageToken: "x"}, prefixes: l.prefixes},
	} {
		if out, err := other.page(t.Context()); !errors.Is(err, page.ErrToken) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
}

// TestOnlyWorkflowsHaveRuns checks that a call about an entity of a type that
// is not a workflow never reaches the entity.
func TestOnlyWorkflowsHaveRuns(t *testing.T) {
	_, h := testShards() // the handler has no Entities, so a call that reaches an entity panics
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"StartWorkflow": func() error {
			_, err := h.StartWorkflow(ctx, connect.NewRequest(&workflowv1.StartWorkflowRequest{EntityType: "account", EntityId: "a"}))
			return err
		},
		"GetWorkflow": func() error {
			_, err := h.GetWorkflow(ctx, connect.NewRequest(&workflowv1.GetWorkflowRequest{EntityType: "account", EntityId: "a"}))
			return err
		},
		"SignalWorkflow": func() error {
			_, err := h.SignalWorkflow(ctx, connect.NewRequest(&workflowv1.SignalWorkflowRequest{EntityType: "account", EntityId: "a", Name: "s"}))
			return err
		},
		"CancelWorkflow": func() error {
			_, err := h.CancelWorkflow(ctx, connect.NewRequest(&workflowv1.CancelWorkflowRequest{EntityType: "account", EntityId: "a"}))
			return err
		},
		"TerminateWorkflow": func() error {
			_, err := h.TerminateWorkflow(ctx, connect.NewRequest(&workflowv1.TerminateWorkflowRequest{EntityType: "account", EntityId: "a"}))
			return err
		},
		"QueryWorkflow": func() error {
			_, err := h.QueryWorkflow(ctx, connect.NewRequest(&workflowv1.QueryWorkflowRequest{EntityType: "account", EntityId: "a"}))
			return err
		},
		"ListWorkflows": func() error {
			_, err := h.ListWorkflows(ctx, connect.NewRequest(&workflowv1.ListWorkflowsRequest{EntityType: "account"}))
			return err
		},
		"GetWorkflowHistory": func() error {
			_, err := h.GetWorkflowHistory(ctx, connect.NewRequest(&workflowv1.GetWorkflowHistoryRequest{EntityType: "account", EntityId: "a"}))
			return err
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "is not a workflow") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
