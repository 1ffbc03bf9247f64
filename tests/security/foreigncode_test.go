package security

import (
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// shown is a transport that adds a token to every call.
type shown string

// RoundTrip implements http.RoundTripper.
func (s shown) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(s))
	return http.DefaultTransport.RoundTrip(r)
}

// refusalOf returns the reason of an API error.
func refusalOf(err error) string {
	var e *connect.Error
	if !errors.As(err, &e) {
		return ""
	}
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			if info, ok := m.(*errdetails.ErrorInfo); ok {
				return info.GetReason()
			}
		}
	}
	return ""
}

// TestForeignModuleIsNotRunOnEntities checks that the module of a caller who
// does not own a type is not run on the type's entities, nor on entities of
// another type in the same rollout, because the results would reveal their
// data.
func TestForeignModuleIsNotRunOnEntities(t *testing.T) {
	t.Parallel()
	token, file := tokens(t, "root", "ann", "bo")
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--auth", "required", "--token-file", file, "--admin", "full"}})
	ctx := t.Context()
	as := func(name string) *client.Client {
		return n.Client(client.Options{Token: token[name], Timeout: testkit.Patience})
	}
	modules := func(name string) modulev1connect.ModuleServiceClient {
		return modulev1connect.NewModuleServiceClient(&http.Client{Transport: shown(token[name])}, n.API())
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	root := as("root")
	bind(t, root, "token:root", "admin")
	bind(t, root, "token:ann", "deployer")
	bind(t, root, "token:bo", "deployer")
	_, err := as("ann").Upload(ctx, guest.Module{Good: "one", Bad: "two"}.Build(), true)
	must(err)
	must(root.SetTypeOwner(ctx, "two", "token:bo"))
	for _, name := range []string{"one", "two"} {
		_, err := root.Send(ctx, client.Command{EntityType: name, EntityID: "e", Name: "do"})
		must(err)
	}
	// The manifest of this module does not list the stored events.
	unfit := guest.Module{Manifest: `{"abi":1,"name":"m","version":"2","entityTypes":[
		{"name":"one","kind":"event-sourced","encoding":"bytes","events":[{"type":"else"}]},{"name":"two","kind":"event-sourced","encoding":"bytes","events":[{"type":"else"}]}]}`}.Build()
	up, err := as("bo").Upload(ctx, unfit, false)
	must(err)
	refused := func(what string, err error) {
		t.Helper()
		if reason := refusalOf(err); connect.CodeOf(err) != connect.CodePermissionDenied || reason != "NOT_OWNER" {
			t.Errorf("%s: %v (%s), want it denied with NOT_OWNER", what, err, reason)
		}
	}
	activate := func(name, entityType string, plan *modulev1.RolloutPlan) error {
		_, err := modules(name).ActivateModule(ctx, connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: entityType, Digest: up.Digest, Rollout: plan}))
		return err
	}
	half := &modulev1.RolloutPlan{Share: 128}
	refused("activate", activate("bo", "one", nil))
	refused("begin a rollout", activate("bo", "one", half))
	refused("begin a rollout that takes another's type along", activate("ann", "one", half))
	_, err = modules("bo").CheckCompatibility(ctx, connect.NewRequest(&modulev1.CheckCompatibilityRequest{EntityType: "one", Digest: up.Digest}))
	refused("compare", err)
	stream, err := modules("bo").VerifyModule(ctx, connect.NewRequest(&modulev1.VerifyModuleRequest{EntityType: "one", Digest: up.Digest, Scope: &modulev1.VerifyModuleRequest_All{All: true}}))
	must(err)
	for stream.Receive() {
		t.Errorf("verify: %v", stream.Msg())
	}
	refused("verify", stream.Err())

	// The owner gets the result of the compatibility check.
	if err := activate("ann", "one", nil); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("activate by the owner: %v", err)
	}
}
