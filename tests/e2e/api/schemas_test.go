package api

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestMisspeltMemberIsRejected checks that the schema that the SDK generated
// for the counter rejects misspelt members, over every protocol and on a
// stream. The error suggests the correct name, and nothing is written.
func TestMisspeltMemberIsRejected(t *testing.T) {
	s := start(t, testkit.NodeOptions{}, "counter")
	const want = `the payload does not match the schema: amout: unknown member "amout", did you mean "amount"?`
	absent := func() {
		t.Helper()
		res, err := s.call(t.Context(), &entityv1.GetEntityRequest{EntityType: "counter", EntityId: "a"})
		if err != nil || res.(*entityv1.GetEntityResponse).GetSequence() != 0 || res.(*entityv1.GetEntityResponse).GetStatus() == "active" {
			t.Errorf("something was written: %v, %v", res, err)
		}
	}
	for _, p := range protocols {
		_, err := s.call(t.Context(), command("counter", "a", "add", `{"amout":3}`), p.opts...)
		refused, is := err.(*connect.Error)
		if !is || refused.Code() != connect.CodeInvalidArgument || refused.Message() != want {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		var fields []string
		for _, d := range refused.Details() {
			if v, err := d.Value(); err == nil {
				for _, f := range v.(*errdetails.BadRequest).GetFieldViolations() {
					fields = append(fields, f.GetField())
				}
			}
		}
		if len(fields) != 1 || fields[0] != "amout" {
			t.Errorf("%s: the details name %q", p.name, fields)
		}
	}
	absent()
	stream := s.node.Client(client.Options{}).Stream(client.StreamOptions{})
	done := make(chan error, 1)
	if err := stream.Send(t.Context(), client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amout":3}`)}, func(_ client.Reply, err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; client.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
		t.Errorf("a stream: %v", err)
	}
	if err := stream.Close(t.Context()); err != nil {
		t.Error(err)
	}
	absent()

	for _, c := range []struct {
		path, body, want string
		status           int
	}{
		{"SendCommand", `{"entityType":"counter","entityId":"a","command":"add","json":{"amount":"x"}}`, `amount: is not a 64-bit integer in digits`, 400},
		{"SendCommand", `{"entityType":"counter","entityId":"a","comand":"add"}`, `SendCommandRequest: unknown member \"comand\", did you mean \"command\"?`, 400},
		{"SendCommand", `{"entityType":"countr","entityId":"a","command":"add"}`, `did you mean \"counter\"?`, 404},
		{"SendCommand", `{"entityType":"counter","entityId":"a","command":"ad"}`, `did you mean \"add\"?`, 404},
		{"QueryEntity", `{"entityType":"counter","entityId":"a","query":"totl"}`, `did you mean \"total\"?`, 404},
	} {
		if status, body := s.post(t, entityPath+c.path, "application/json", c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", c.body, status, body)
		}
	}
	absent()

	if _, err := s.call(t.Context(), &clusterv1.PutSettingRequest{Key: "entity.counter.validate", Value: "off"}); err != nil {
		t.Fatal(err)
	}
	s.node.Await("payloads are not looked at", func() bool {
		_, err := s.call(t.Context(), command("counter", "a", "add", `{"amout":3}`))
		return err == nil
	})
}

// TestInvalidSchemaIsRejectedOnUpload checks that the error names the place of an invalid
// schema, and that the module is not stored.
func TestInvalidSchemaIsRejectedOnUpload(t *testing.T) {
	s := start(t, testkit.NodeOptions{})
	for schema, want := range map[string]string{
		`{"properties":{"n":{"minimum":"1"}}}`: `module refused: manifest: entityTypes[0].commands[1].schema.properties.n.minimum: is not a number`,
		`{"$ref":"http://127.0.0.1:1/x"}`:      `module refused: manifest: entityTypes[0].commands[1].schema.$ref: "http://127.0.0.1:1/x" points outside the module`,
		`{"title":7}`:                          `module refused: manifest: entityTypes[0].commands[1].schema.title: `,
	} {
		m := guest.Module{Manifest: fmt.Sprintf(`{"abi":1,"name":"x","entityTypes":[{"name":"bad","kind":"event-sourced","encoding":"json","commands":[{"name":"a"},{"name":"b","schema":%s}]}]}`, schema)}
		if _, err := s.call(t.Context(), &modulev1.UploadModuleRequest{Wasm: m.Build(), Activate: true}); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", schema, err)
		}
	}
	if all := s.digests(t); len(all) != 0 {
		t.Errorf("kept: %v", all)
	}
}
