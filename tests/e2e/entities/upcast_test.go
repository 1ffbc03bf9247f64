package entities

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// modules returns a client of the node's ModuleService.
func (n *node) modules() modulev1connect.ModuleServiceClient {
	return modulev1connect.NewModuleServiceClient(http.DefaultClient, "http://"+n.n.Addr())
}

// orders uploads a version of the type order.
func (n *node) orders(version string, activate bool) (digest string) {
	n.t.Helper()
	up, err := n.c.Upload(n.t.Context(), testkit.BuildGuest(n.t, "tests/e2e/entities/orders/"+version), activate)
	if err != nil {
		n.t.Fatal(err)
	}
	return up.Digest
}

func (n *node) place(id, item string) (state string) {
	n.t.Helper()
	r, err := n.c.Send(n.t.Context(), client.Command{EntityType: "order", EntityID: id, Name: "place", Data: []byte(item)})
	if err != nil {
		n.t.Fatal(err)
	}
	return string(r.Data)
}

// verify verifies a module on all orders. It returns the last report with the
// differences of all reports.
func (n *node) verify(digest string) *modulev1.VerifyModuleResponse {
	n.t.Helper()
	return n.verifyTo(digest, &modulev1.VerifyModuleRequest{Scope: &modulev1.VerifyModuleRequest_All{All: true}})
}

func (n *node) verifyTo(digest string, r *modulev1.VerifyModuleRequest) *modulev1.VerifyModuleResponse {
	n.t.Helper()
	r.EntityType, r.Digest = "order", digest
	stream, err := n.modules().VerifyModule(n.t.Context(), connect.NewRequest(r))
	if err != nil {
		n.t.Fatal(err)
	}
	var differences []*modulev1.VerifyModuleResponse_Difference
	var last *modulev1.VerifyModuleResponse
	for stream.Receive() {
		last = stream.Msg()
		differences = append(differences, last.GetDifferences()...)
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil || last == nil {
		n.t.Fatal(last, err)
	}
	last.Differences = differences
	return last
}

func (n *node) activate(digest string) error {
	_, err := client.ActivateModule(n.t.Context(), n.c, &modulev1.ActivateModuleRequest{EntityType: "order", Digest: digest})
	return err
}

// TestUpcastersAreVerified checks that a module that upcasts stored events
// agrees with the previous module on all histories, and that for a module whose
// upcaster swaps two fields, the first event that it reads differently is
// reported. A rollback is rejected once events of the newer version are stored.
func TestUpcastersAreVerified(t *testing.T) {
	const entities = 5
	n := newNode(t)
	before, now, swapped := n.orders("before", true), n.orders("now", false), n.orders("swapped", false)
	for i := range entities {
		// Both fields of the first event are equal, so swapping them makes no
		// difference.
		for _, count := range []int{7, 1, 2, 3, 4, 5} {
			n.place(fmt.Sprint("o", i), fmt.Sprintf(`{"sku":"tea","count":%d,"cents":7}`, count))
		}
	}
	got := n.verify(swapped)
	if got.GetEntities() != entities || len(got.GetDifferences()) != entities {
		t.Errorf("two fields are swapped: %v", got)
	}
	for _, d := range got.GetDifferences() {
		if d.GetSequence() != 2 || d.GetFault() || !strings.Contains(d.GetDescription(), `"count":7,"cents":1`) {
			t.Errorf("a difference is %v", d)
		}
	}
	if got := n.verify(now); got.GetEntities() != entities || got.GetEvents() != 6*entities || len(got.GetDifferences()) != 0 {
		t.Errorf("a module that upcasts: %v", got)
	}
	if err := n.activate(now); err != nil {
		t.Fatal(err)
	}
	const last = `{"sku":"jam","count":9,"cents":250}`
	if state := n.place("o1", `{"items":[`+last+`]}`); strings.Count(state, `"sku":"tea"`) != 6 || strings.Count(state, last) != 1 {
		t.Errorf("an order is %s", state)
	}
	var types []string
	for e, err := range n.c.ReadEvents(t.Context(), client.EventRange{EntityType: "order", EntityID: "o1", From: 6}) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, e.Type)
	}
	if want := []string{"placed", "placed.v2"}; !slices.Equal(types, want) {
		t.Errorf("the stored events from the sixth on are %q, want %q", types, want)
	}
	if err := n.activate(before); reason(err) != "INCOMPATIBLE_EVENTS" || !strings.Contains(fmt.Sprint(err), "placed.v2 (1)") {
		t.Errorf("the module before, over newer events: %v", err)
	}
}

// TestRequiredVerificationBlocksActivation checks that if a type requires a verification, a
// module can be activated only after it passed a verification of enough entities against
// the currently active revision. Force overrides the requirement, and the principal that
// forced the activation is recorded.
func TestRequiredVerificationBlocksActivation(t *testing.T) {
	n := newNode(t)
	before, now, swapped := n.orders("before", true), n.orders("now", false), n.orders("swapped", false)
	for i := range 3 {
		n.place(fmt.Sprint("o", i), `{"sku":"tea","count":1,"cents":7}`)
	}
	require := func(what string) {
		t.Helper()
		if _, err := n.c.PutSetting(t.Context(), "entity.order.require-verify", what); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(digest, want string) {
		t.Helper()
		if err := n.activate(digest); reason(err) != want || client.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Fatalf("%v, want %s", err, want)
		}
	}
	if _, err := n.c.PutSetting(t.Context(), "entity.order.require-verify", "some"); client.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a setting that says nothing: %v", err)
	}
	require("all")
	refused(now, "VERIFY_REQUIRED")
	if m := n.verifyTo(now, &modulev1.VerifyModuleRequest{Scope: &modulev1.VerifyModuleRequest_Sample{Sample: 2}}); !m.GetStored() || m.GetEntities() != 2 {
		t.Fatalf("a sample: %v", m)
	}
	refused(now, "VERIFY_REQUIRED")
	if m := n.verifyTo(now, &modulev1.VerifyModuleRequest{Scope: &modulev1.VerifyModuleRequest_All{All: true}, ShardId: 1}); m.GetStored() || m.GetNotStoredReason() != "" {
		t.Fatalf("one shard: %v", m)
	}
	refused(now, "VERIFY_REQUIRED")
	require("sample")
	if m := n.verify(swapped); !m.GetStored() || m.GetDifferingEntities() != 3 || m.GetFaultyEntities() != 0 {
		t.Fatalf("a module that swaps fields: %v", m)
	}
	refused(swapped, "VERIFY_FAILED")
	require("all")
	if m := n.verify(now); !m.GetStored() {
		t.Fatalf("all: %v", m)
	}
	n.stop()
	n.start()
	if err := n.activate(now); err != nil {
		t.Fatalf("a verified module: %v", err)
	}
	m, err := n.c.ActiveModule(t.Context(), "order")
	if err != nil || len(m.GetModule().GetVerifications()) != 1 {
		t.Fatal(m, err)
	}
	if v := m.GetModule().GetVerifications()[0]; v.GetEntityType() != "order" || !v.GetAll() || v.GetEntities() != 3 || v.GetVerifiedBy() != "anonymous" || v.GetDifferences() != 0 || v.GetVerifiedAt().AsTime().Unix() == 0 {
		t.Errorf("kept is %v", v)
	}
	// A verification against an earlier revision no longer counts.
	refused(before, "VERIFY_REQUIRED")
	refused(swapped, "VERIFY_REQUIRED")
	if m := n.verify(swapped); !m.GetStored() || m.GetDifferingEntities() != 3 {
		t.Fatalf("against the module that serves now: %v", m)
	}
	res, err := client.ActivateModule(t.Context(), n.c, &modulev1.ActivateModuleRequest{EntityType: "order", Digest: swapped, AcceptDifferences: true})
	if err != nil || len(res.GetWarnings()) != 0 {
		t.Errorf("differences that are meant: %v, %v", res, err)
	}
	res, err = client.ActivateModule(t.Context(), n.c, &modulev1.ActivateModuleRequest{EntityType: "order", Digest: before, Force: true})
	if err != nil || len(res.GetWarnings()) != 1 || !strings.Contains(res.GetWarnings()[0], "was not verified") {
		t.Errorf("forced: %v, %v", res, err)
	}
	if m, err := n.c.ActiveModule(t.Context(), "order"); err != nil || m.GetModule().GetActivations()[0].GetForcedBy() != "anonymous" {
		t.Errorf("it was forced by %v, %v", m.GetModule().GetActivations(), err)
	}
}
