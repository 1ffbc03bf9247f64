package api

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestFullQueue checks that commands beyond the limit of a queue are rejected
// individually and leave nothing behind, and that accepted commands run in
// order.
func TestFullQueue(t *testing.T) {
	s := start(t, testkit.NodeOptions{Flags: []string{"--max-entity-in-flight", "4"}}, "counter")
	const commands = 512
	stream := s.entities(connect.WithGRPC()).SendCommandStream(t.Context())
	batch := &entityv1.SendCommandStreamRequest{}
	for i := range commands {
		r := command("counter", "a", "add", `{"amount":1}`)
		r.CommandId = fmt.Sprint(i)
		batch.Requests = append(batch.Requests, &entityv1.SendCommandStreamRequest_Item{CorrelationId: uint64(i), Request: r})
	}
	if err := stream.Send(batch); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	answered, taken, refused := map[uint64]bool{}, map[string]uint64{}, 0
	for {
		res, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range res.GetResponses() {
			if answered[item.GetCorrelationId()] {
				t.Errorf("command %d is answered twice", item.GetCorrelationId())
			}
			answered[item.GetCorrelationId()] = true
			if e := item.GetError(); e != nil {
				if refused++; e.GetCode() != "resource_exhausted" || e.GetMessage() == "" {
					t.Errorf("command %d: %v", item.GetCorrelationId(), e)
				}
				continue
			}
			taken[fmt.Sprint(item.GetCorrelationId())] = item.GetResponse().GetSequence()
		}
	}
	if len(answered) != commands || refused == 0 || len(taken) == 0 {
		t.Errorf("%d commands answered, %d refused, %d taken", len(answered), refused, len(taken))
	}
	events := s.written(t, "counter")
	if len(events) != len(taken) {
		t.Errorf("%d events of %d commands that were taken", len(events), len(taken))
	}
	for id, sequence := range taken {
		if !strings.Contains(events[sequence-1], fmt.Sprintf("command_id:%q", id)) {
			t.Errorf("command %s was acknowledged at sequence %d, where there is %s", id, sequence, events[sequence-1])
		}
	}
}

// TestStreamItems checks that an invalid command on a stream fails only its own
// item, and that the stream continues.
func TestStreamItems(t *testing.T) {
	s := start(t, testkit.NodeOptions{}, "counter", "account")
	items := []struct {
		request *entityv1.SendCommandRequest
		code    string
	}{
		{command("counter", "a", "add", `{"amount":1}`), ""},
		{command("counter", "a\x01", "add", `{"amount":1}`), "invalid_argument"},
		{command("nothing", "a", "add", ""), "not_found"},
		{command("counter", "a", "fly", ""), "not_found"},
		{command("counter", "a", "add", "{"), "invalid_argument"},
		{command("account", "a", "withdraw", `{"amount":1}`), "failed_precondition"},
		{&entityv1.SendCommandRequest{EntityType: "counter", EntityId: "b", Command: "add", ExpectedSequence: proto.Uint64(3)}, "failed_precondition"},
		{nil, "invalid_argument"},
		{command("counter", "a", "add", `{"amount":1}`), ""},
	}
	for _, p := range protocols {
		stream := s.entities(p.opts...).SendCommandStream(t.Context())
		batch := &entityv1.SendCommandStreamRequest{}
		for i, item := range items {
			batch.Requests = append(batch.Requests, &entityv1.SendCommandStreamRequest_Item{CorrelationId: uint64(i), Request: item.request})
		}
		if err := stream.Send(batch); err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseRequest(); err != nil {
			t.Fatal(err)
		}
		got := map[uint64]string{}
		for {
			res, err := stream.Receive()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", p.name, err)
			}
			for _, item := range res.GetResponses() {
				got[item.GetCorrelationId()] = item.GetError().GetCode()
				if details := len(item.GetError().GetDetails()); details != 0 != (item.GetError().GetCode() == "failed_precondition") {
					t.Errorf("%s: item %d has %d details: %v", p.name, item.GetCorrelationId(), details, item)
				}
			}
		}
		for i, item := range items {
			if code, ok := got[uint64(i)]; !ok || code != item.code {
				t.Errorf("%s: item %d has the code %q, want %q", p.name, i, code, item.code)
			}
		}
	}
	if n := len(s.written(t, "counter")); n != 2*len(protocols) {
		t.Errorf("%d events, want %d", n, 2*len(protocols))
	}
	if n := len(s.written(t, "account")); n != 0 {
		t.Errorf("%d events of the rejected command", n)
	}
}

// TestReadOnlyAdminRejectsChanges checks that a node with read-only admin rejects changes of the
// cluster, and that calls that are not implemented return that code.
func TestReadOnlyAdminRejectsChanges(t *testing.T) {
	s := start(t, testkit.NodeOptions{Flags: []string{"--admin", "read-only"}})
	for _, r := range []proto.Message{
		&clusterv1.MoveShardRequest{ShardId: 1, ToNode: "n1"},
		&clusterv1.DrainNodeRequest{NodeId: "n1"},
		&clusterv1.DownNodeRequest{NodeId: "n1"},
		&clusterv1.RemoveNodeRequest{NodeId: "n1"},
		&clusterv1.ResumeNodeRequest{NodeId: "n1"},
		&clusterv1.RebalanceShardsRequest{},
		&clusterv1.PutSettingRequest{Key: "a", Value: "b"},
	} {
		_, err := s.call(t.Context(), r)
		if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "admin: full") {
			t.Errorf("%T: got %v, want permission_denied and the way to allow it", r, err)
		}
	}
	if _, err := s.call(t.Context(), &modulev1.RollbackModuleRequest{EntityType: "counter"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("rollback of what was never activated: %v", err)
	}
}
