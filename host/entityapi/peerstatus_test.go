package entityapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

type anyType struct{ Types }

func (anyType) Encoding(context.Context, string) (request.Encoding, error) { return request.JSON, nil }

// quarantined has one entity, which is quarantined.
type quarantined struct{ Entities }

func (quarantined) Shards() uint32                                        { return 1 }
func (quarantined) ShardOf(sharding.EntityID) sharding.ShardID            { return 1 }
func (quarantined) ShardOfPrefix(string, string) (sharding.ShardID, bool) { return 0, false }
func (quarantined) Get(context.Context, sharding.EntityID) (EntityInfo, error) {
	return EntityInfo{Status: statusQuarantined}, nil
}
func (quarantined) List(context.Context, sharding.ShardID, EntityQuery) (EntityPage, error) {
	return EntityPage{Entities: []EntitySummary{{ID: "a", Status: statusQuarantined}}}, nil
}

// TestPreviousReleaseKnowsStatuses: a node of the previous release that
// forwards a call gets the status by the name that it knows, and a client
// gets it by the current name.
func TestPreviousReleaseKnowsStatuses(t *testing.T) {
	h := NewHandler(Options{Types: anyType{}, Entities: quarantined{}, Proxy: leaderproxy.New(nil), Log: slog.New(slog.DiscardHandler)})
	check := func(ctx context.Context, want string) {
		t.Helper()
		one, err := h.GetEntity(ctx, connect.NewRequest(&entityv1.GetEntityRequest{EntityType: "counter", EntityId: "a"}))
		if err != nil || one.Msg.GetStatus() != want {
			t.Errorf("GetEntity: %v, %v, want the status %s", one, err, want)
		}
		page, err := h.ListEntities(ctx, connect.NewRequest(&entityv1.ListEntitiesRequest{EntityType: "counter"}))
		if err != nil || len(page.Msg.GetEntities()) != 1 || page.Msg.GetEntities()[0].GetStatus() != want {
			t.Errorf("ListEntities: %v, %v, want the status %s", page, err, want)
		}
	}
	check(t.Context(), "quarantined")
	reached := false
	peer := leaderproxy.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached = true
		check(r.Context(), "parked")
	}))
	peer.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, leaderproxy.Path+"hostd.entity.v1.EntityService/GetEntity", nil))
	if !reached {
		t.Fatal("the forwarded call did not arrive")
	}
}
