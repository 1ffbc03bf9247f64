package security

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// take sends the command take to a deed, and returns the reply and the node
// that executed it.
func (a at) take(id string) (reply, node string, err error) {
	res, err := a.SendCommand(a.ctx, connect.NewRequest(&entityv1.SendCommandRequest{EntityType: "deed", EntityId: id, Command: "take", Payload: &entityv1.SendCommandRequest_Data{Data: []byte("{}")}}))
	if err != nil {
		return "", "", err
	}
	return string(res.Msg.GetData()), res.Msg.GetNodeId(), nil
}

func (a at) caller(id string) (string, error) {
	res, err := a.QueryEntity(a.ctx, connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: "deed", EntityId: id, Query: "caller", Payload: &entityv1.QueryEntityRequest_Data{Data: []byte("{}")}}))
	if err != nil {
		return "", err
	}
	return string(res.Msg.GetData()), nil
}

// code returns the code of a handler's rejection.
func code(err error) string {
	var e *connect.Error
	if !errors.As(err, &e) {
		return ""
	}
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			if r, ok := m.(*entityv1.Rejection); ok {
				return r.GetCode()
			}
		}
	}
	return ""
}

// TestGuestGetsAuthenticatedCaller checks that a handler receives the
// authenticated caller and can base its decision on the caller, whichever nodes
// receive and execute the call. A client cannot set the caller by a header.
func TestGuestGetsAuthenticatedCaller(t *testing.T) {
	token, file := tokens(t, "ann", "bo")
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Token: token["ann"], Flags: []string{"--auth", "allow", "--token-file", file, "--admin", "full"}})
	c.Start()
	wasm := testkit.BuildGuest(t, "tests/security/guest")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	if _, err := c.Node(0).Client(client.Options{Timeout: testkit.Patience}).Upload(ctx, wasm, true); err != nil {
		t.Fatal(err)
	}
	call := calls(t, ctx)
	const ann, anonymous = `{"groups":null,"kind":"token","known":true,"name":"ann"}`, `{"groups":null,"kind":"anonymous","known":true,"name":""}`
	by := map[string][]string{} // nodes that executed calls, by the node that received them
	for i := range 12 {
		for _, node := range c.Nodes() {
			id := fmt.Sprintf("%s-%d", node.ID(), i)
			her, his := call(node.API(), token["ann"], ""), call(node.API(), token["bo"], `{"kind":"token","name":"ann"}`)
			var reply, at string
			node.Until("ann takes a deed", func() (err error) {
				reply, at, err = her.take(id)
				return err
			})
			if by[node.ID()] = append(by[node.ID()], at); !sameJSON(reply, ann) {
				t.Errorf("%s, %s: the handler was told %s", node.ID(), at, reply)
			}
			if told, err := her.caller(id); err != nil || !sameJSON(told, ann) {
				t.Errorf("%s, %s: the query was told %s, %v", node.ID(), at, told, err)
			}
			if told, err := call(node.API(), "", `{"kind":"token","name":"ann"}`).caller(id); err != nil || !sameJSON(told, anonymous) {
				t.Errorf("%s, %s: of who shows nothing the query was told %s, %v", node.ID(), at, told, err)
			}
			if _, _, err := his.take(id); code(err) != "not_yours" {
				t.Errorf("%s, %s: another's deed: %v", node.ID(), at, err)
			}
		}
	}
	for asked, nodes := range by {
		slices.Sort(nodes)
		if nodes = slices.Compact(nodes); len(nodes) < 2 {
			t.Errorf("what %s was asked was carried out by %v alone", asked, nodes)
		}
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// made returns the principals of an entity's events, as a node reports them.
func (a at) made(id string) (string, error) {
	events, err := a.ReadEvents(a.ctx, connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: "deed", EntityId: id}))
	if err != nil {
		return "", err
	}
	defer events.Close()
	var out []string
	for events.Receive() {
		p := events.Msg().GetPrincipal()
		out = append(out, fmt.Sprintf("%s:%s", p.GetKind(), p.GetName()))
	}
	return strings.Join(out, " "), events.Err()
}

// TestCallerIsStoredWithRecord checks that the caller is stored with the record and
// survives forwarding, the failure of the node that executed the command, and a
// restart of all nodes. Subscribers receive it, too.
func TestCallerIsStoredWithRecord(t *testing.T) {
	token, file := tokens(t, "ann")
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Token: token["ann"], Flags: []string{"--auth", "allow", "--token-file", file, "--admin", "full"}})
	c.Start()
	wasm := testkit.BuildGuest(t, "tests/security/guest")
	ctx, cancel := context.WithTimeout(t.Context(), 3*testkit.Patience)
	defer cancel()
	if _, err := c.Node(0).Client(client.Options{Timeout: testkit.Patience}).Upload(ctx, wasm, true); err != nil {
		t.Fatal(err)
	}
	call := calls(t, ctx)
	asked := c.Node(0)
	leader := ""
	var id string
	for i := 0; leader == "" || leader == asked.ID(); i++ {
		id = fmt.Sprint("deed-", i)
		asked.Until("ann takes a deed", func() (err error) {
			_, leader, err = call(asked.API(), token["ann"], "").take(id)
			return err
		})
	}
	if _, _, err := call(asked.API(), "", "").take("nobodys"); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		for _, node := range c.Nodes() {
			if !node.Running() {
				continue
			}
			for of, want := range map[string]string{id: "token:ann", "nobodys": "anonymous:"} {
				var got string
				node.Until("the events are read", func() (err error) {
					got, err = call(node.API(), token["ann"], "").made(of)
					return err
				})
				if got != want {
					t.Errorf("%s, %s: %s was made by %q", when, node.ID(), of, got)
				}
			}
		}
	}
	check("at first")
	c.Kill(c.Place(leader))
	check("without the node that carried it out")
	c.Start()
	c.StopAll()
	c.Start()
	check("after a start of all")
	told := map[string]string{}
	for d, err := range c.Node(1).Client(client.Options{Timeout: testkit.Patience}).Subscribe(ctx, client.Subscription{EntityType: "deed", Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Principal == nil {
			t.Fatalf("of %s a subscriber is told nobody", d.EntityID)
		}
		if told[d.EntityID] = d.Principal.Kind + ":" + d.Principal.Name; told[id] != "" && told["nobodys"] != "" {
			break
		}
	}
	if told[id] != "token:ann" || told["nobodys"] != "anonymous:" {
		t.Errorf("subscribers are told %v", told)
	}
}
