package host_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// pages lists the matching entities page by page, from each node in turn, and
// reports how often a page was empty.
func pages(t *testing.T, cs []*client.Client, req *entityv1.ListEntitiesRequest) (all []string) {
	t.Helper()
	for i := 0; ; i++ {
		page, err := cs[i%len(cs)].ListPage(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(page.GetEntities()); req.GetPageSize() > 0 && n > int(req.GetPageSize()) {
			t.Fatalf("a page of %d", n)
		}
		for _, e := range page.GetEntities() {
			all = append(all, e.GetEntityId()+" "+e.GetStatus()+map[bool]string{true: "+"}[e.GetResident()])
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			slices.Sort(all)
			return all
		}
	}
}

// TestListByPrefixAndStatus: listings find entities by prefix and status, no
// matter which nodes answer and whether the entities are in memory.
func TestListByPrefixAndStatus(t *testing.T) {
	nodes := startCluster(t, 3, 6)
	var cs []*client.Client
	for _, n := range nodes {
		cs = append(cs, dialNode(t, n))
	}
	ctx, c := t.Context(), cs[0]
	entities := entityv1connect.NewEntityServiceClient(http.DefaultClient, "http://"+nodes[1].Addr())
	if _, err := c.Upload(ctx, guest.Module{Good: "good", Bad: "bad", Handle: guest.Unreachable}.Build(), true); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 40 {
		id := fmt.Sprintf("%c-%02d", 'a'+i%2, i)
		want = append(want, id)
		if _, err := c.Send(ctx, client.Command{EntityType: "good", EntityID: id, Name: "do"}); err != nil {
			t.Fatal(err)
		}
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
		defer cancel()
		for !ok() {
			if ctx.Err() != nil {
				t.Fatalf("waited too long for %s", what)
			}
			time.Sleep(time.Millisecond)
		}
	}
	slices.Sort(want)
	bare := func(lines []string) (out []string) {
		for _, l := range lines {
			out = append(out, strings.TrimSuffix(l, "+"))
		}
		return out
	}
	with := func(ids []string, mark string) (out []string) {
		for _, id := range ids {
			out = append(out, id+mark)
		}
		return out
	}
	for _, size := range []uint32{1, 3, 7, 100} {
		if got := pages(t, cs, &entityv1.ListEntitiesRequest{EntityType: "good", PageSize: size}); !slices.Equal(bare(got), with(want, " active")) {
			t.Errorf("pages of %d: %v", size, got)
		}
	}
	if got := pages(t, cs, &entityv1.ListEntitiesRequest{EntityType: "good", IdPrefix: "b-", PageSize: 4}); !slices.Equal(bare(got), with(want[20:], " active")) {
		t.Errorf("prefix: %v", got)
	}
	for _, id := range want[:20] {
		if _, err := entities.PassivateEntity(ctx, connect.NewRequest(&entityv1.PassivateEntityRequest{EntityType: "good", EntityId: id})); err != nil {
			t.Fatal(err)
		}
	}
	// Meanwhile a shard may move to another node, and its entities leave
	// memory.
	for status, expect := range map[string][]string{"active": with(want, " active"), "quarantined": nil, "deleted": nil} {
		if got := pages(t, cs, &entityv1.ListEntitiesRequest{EntityType: "good", PageSize: 6, Status: status}); !slices.Equal(bare(got), expect) {
			t.Errorf("%s: %v", status, got)
		}
	}
	eventually("those in memory and the others to be all", func() bool {
		resident := pages(t, cs, &entityv1.ListEntitiesRequest{EntityType: "good", PageSize: 6, Status: "resident"})
		passivated := pages(t, cs, &entityv1.ListEntitiesRequest{EntityType: "good", PageSize: 6, Status: "passivated"})
		for _, e := range append(slices.Clone(resident), passivated...) {
			if strings.HasSuffix(e, "+") != slices.Contains(resident, e) || slices.Contains(want[:20], strings.TrimSuffix(e, " active+")) {
				t.Fatalf("resident: %v, passivated: %v", resident, passivated)
			}
		}
		all := bare(append(resident, passivated...))
		slices.Sort(all)
		return slices.Equal(all, with(want, " active"))
	})
	// An entity that fails repeatedly is quarantined, and is found among many
	// others.
	quarantined := func(prefix string) []string {
		return pages(t, cs, &entityv1.ListEntitiesRequest{EntityType: "bad", PageSize: 2, IdPrefix: prefix, Status: "quarantined"})
	}
	eventually("entities to be quarantined", func() bool { // the back-off grows each time
		for i := range 7 {
			if _, err := c.Send(ctx, client.Command{EntityType: "bad", EntityID: fmt.Sprint("p-", i), Name: "do"}); err == nil {
				t.Fatal("the guest did not fail")
			}
		}
		all := quarantined("")
		return len(all) == 7 && all[0] == "p-0 quarantined" && slices.Equal(quarantined("p-3"), []string{"p-3 quarantined"})
	})
}
