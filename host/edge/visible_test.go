package edge_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/sharding/access"
)

// list reads a listing of counters to its end.
func (g *guarded) list(t *testing.T, as, prefix, token string, size uint32) (ids []string, pages []*entityv1.ListEntitiesResponse, err error) {
	t.Helper()
	for {
		res, err := g.entitiesAs(as).ListEntities(t.Context(), connect.NewRequest(&entityv1.ListEntitiesRequest{EntityType: "counter", IdPrefix: prefix, PageSize: size, PageToken: token}))
		if err != nil {
			return ids, pages, err
		}
		for _, e := range res.Msg.GetEntities() {
			ids = append(ids, e.GetEntityId())
		}
		pages = append(pages, res.Msg)
		if token = res.Msg.GetNextPageToken(); token == "" {
			slices.Sort(ids)
			return ids, pages, nil
		}
	}
}

func reads(prefixes ...string) access.Rule {
	return access.Rule{Effect: access.Allow, Verbs: []string{access.Read}, Types: []string{"counter"}, IDPrefixes: prefixes}
}

// TestListingsShowWhatTheirCallersMaySee: a listing contains only entities that
// its caller may see, and reveals nothing about other entities.
func TestListingsShowWhatTheirCallersMaySee(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "ann", "bo", "cy")
	g.begin(t)
	many := make([]string, 0, 6)
	for i := range 6 {
		many = append(many, fmt.Sprintf("none%d/", i))
	}
	g.role(t, "reader", reads("${principal.name}/", "open/"), reads("open/a"), reads(many...))
	g.role(t, "barred", reads("cy/"), access.Rule{Effect: access.Deny, Verbs: []string{access.Read}, Types: []string{"counter"}, IDPrefixes: []string{"secret/"}})
	g.bind(t, "token:ann", "reader")
	g.bind(t, "token:cy", "barred")
	want := []string{}
	fill := func(ids ...string) {
		for _, id := range ids {
			if _, err := g.entitiesAs("root").SendCommand(t.Context(), connect.NewRequest(add(id, 1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 7 {
		want = append(want, fmt.Sprintf("ann/%d", i), fmt.Sprintf("open/a%d", i))
	}
	slices.Sort(want)
	fill(want...)
	alone := map[uint32][]*entityv1.ListEntitiesResponse{}
	for _, size := range []uint32{1, 3, 100} {
		ids, pages, err := g.list(t, "ann", "", "", size)
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("pages of %d: %v, %v", size, ids, err)
		}
		alone[size] = pages
	}
	// Now other entities exist before, between and after the visible ones;
	// the listing must not reveal these entities.
	fill("aa", "ann", "anna/1", "bo/1", "open", "opens/1", "z")
	for size, before := range alone {
		ids, pages, err := g.list(t, "ann", "", "", size)
		if err != nil || !slices.Equal(ids, want) || len(pages) != len(before) {
			t.Fatalf("pages of %d, with others there: %d for %d, %v, %v", size, len(pages), len(before), ids, err)
		}
		for i, p := range pages {
			if p.String() != before[i].String() {
				t.Errorf("page %d of %d tells of others: %v, not %v", i, size, p, before[i])
			}
		}
	}
	if ids, _, err := g.list(t, "ann", "open/a3", "", 3); err != nil || !slices.Equal(ids, []string{"open/a3"}) {
		t.Errorf("with a prefix: %v, %v", ids, err)
	}
	if ids, _, err := g.list(t, "ann", "o", "", 3); err != nil || len(ids) != 7 {
		t.Errorf("with the beginning of one: %v, %v", ids, err)
	}
	for who, prefix := range map[string]string{"ann": "bo/", "bo": "", "cy": ""} {
		_, _, err := g.list(t, who, prefix, "", 3)
		wantDenied(t, who+" lists "+prefix, err, true)
	}
	// The token is valid only for a caller that may see the same prefixes.
	token := alone[3][0].GetNextPageToken()
	if _, _, err := g.list(t, "root", "", token, 3); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("of one who may see all: %v", err)
	}
	g.role(t, "reader", reads("${principal.name}/", "open/", "more/"))
	if _, _, err := g.list(t, "ann", "", token, 3); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("with other rules: %v", err)
	}
	for _, bad := range []string{"!", "AAAA", token + "AAAA", token[:len(token)-2]} {
		if _, _, err := g.list(t, "ann", "", bad, 3); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
	g.role(t, "reader", reads())
	if _, _, err := g.list(t, "ann", "", token, 3); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("of one who may see all now: %v", err)
	}
}

// keyed is a cluster that serves two types.
type keyed struct{ clusterapi.View }

func (k keyed) Overview(ctx context.Context) (clusterapi.Overview, error) {
	o, err := k.View.Overview(ctx)
	o.ShardKeys = []clusterapi.ShardKey{{EntityType: "blob"}, {EntityType: "counter"}}
	return o, err
}

// TestTypesOutOfReachAreNotListed: the description of a cluster names the types
// that its caller can reach, and no others.
func TestTypesOutOfReachAreNotListed(t *testing.T) {
	g := guardWith(t, edge.Options{}, func(d *services.Options) { d.Cluster.View = keyed{d.Cluster.View} }, "root", "ann", "bo", "cy", "di")
	g.begin(t)
	all := access.Rule{Effect: access.Allow, Verbs: []string{access.Read, access.Query}}
	deny := func(r access.Rule, verbs ...string) access.Rule {
		r.Effect, r.Verbs = access.Deny, verbs
		return r
	}
	g.role(t, "barred", all, deny(access.Rule{Types: []string{"count*"}}, access.Read, access.Query))
	g.role(t, "in-part", all, deny(access.Rule{Types: []string{"counter"}}, access.Read), deny(access.Rule{Types: []string{"counter"}, IDPrefixes: []string{"a/"}}, access.Query))
	g.role(t, "sees", access.Rule{Effect: access.Allow, Verbs: []string{access.Read}}, deny(access.Rule{Types: []string{"blob"}}, access.Read))
	g.bind(t, "token:ann", "barred")
	g.bind(t, "token:bo", "in-part")
	g.bind(t, "token:cy", "viewer")
	g.bind(t, "token:di", "sees")
	for name, want := range map[string]string{"root": "[blob counter]", "ann": "[blob]", "bo": "[blob counter]", "cy": "[blob counter]", "di": "[counter]"} {
		res, err := g.clusterAs(name).GetCluster(t.Context(), connect.NewRequest(&clusterv1.GetClusterRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		types := []string{}
		for _, k := range res.Msg.GetShardKeys() {
			types = append(types, k.GetEntityType())
		}
		slices.Sort(types)
		if got := fmt.Sprint(types); got != want {
			t.Errorf("%s sees %s, want %s", name, got, want)
		}
	}
}
