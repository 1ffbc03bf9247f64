package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

type namedState struct {
	Amount       int64
	Saga, Reason string
}

// TestSendsAndAcceptsFromAreEnforced checks, on three nodes, that a saga whose step is
// not accepted returns the amount that it has taken. If a command sends to a type that
// its manifest does not name, it fails and writes nothing, whether a client or a timer
// caused it. A message that a type does not accept becomes a dead letter.
func TestSendsAndAcceptsFromAreEnforced(t *testing.T) {
	t.Parallel()
	cluster := testkit.StartCluster(t, 3, testkit.ClusterOptions{Flags: []string{"--admin", "full"}})
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	if _, err := c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/messages/named"), true); err != nil {
		t.Fatal(err)
	}
	tell := func(entityType, id, command, to string) error {
		_, err := c.Send(t.Context(), client.Command{EntityType: entityType, EntityID: id, Name: command, Data: fmt.Appendf(nil, `{"type":%q,"id":"x","command":"put"}`, to)})
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 9 { // entities in shards of all nodes
		_, err := c.Send(t.Context(), client.Command{EntityType: "saga", EntityID: fmt.Sprint(i), Name: "start"})
		must(err)
	}
	for i := range 9 {
		id := fmt.Sprint(i)
		cluster.Await("saga "+id+" is over", func() bool {
			s := queryNode[namedState](t, c, "saga", id)
			return s.Saga == "returned" && s.Reason == "not_accepted"
		})
		if s := queryNode[namedState](t, c, "purse", id); s.Amount != 0 {
			t.Errorf("purse %s: %+v", id, s)
		}
	}
	if s := queryNode[namedState](t, c, "vault-closed", "v"); s.Amount != 0 {
		t.Errorf("the vault: %+v", s)
	}

	for i := range 3 {
		id := fmt.Sprint("leak-", i)
		if err := tell("purse", id, "tell", "stranger"); client.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "sends to entity type stranger, which its manifest does not list in sends") {
			t.Errorf("a purse sends: %v", err)
		}
		if s := queryNode[namedState](t, c, "purse", id); s.Amount != 0 {
			t.Errorf("it stays with the purse: %+v", s)
		}
	}
	must(tell("purse", "timed", "later", "stranger"))
	cluster.Await("the timer is held", func() bool {
		return slices.ContainsFunc(cluster.Nodes(), func(n *testkit.Node) bool {
			return strings.Contains(n.Log(), "timer waits: its command sends to a type that the manifest does not list")
		})
	})
	if info, err := c.Entity(t.Context(), "purse", "timed"); err != nil || len(info.GetTimers()) != 1 || info.GetFaults() != 0 {
		t.Errorf("it is not held: %v, %v", info, err)
	}
	if s := queryNode[namedState](t, c, "purse", "timed"); s.Amount != 0 {
		t.Errorf("the timer's command had an effect: %+v", s)
	}

	must(tell("stranger", "s", "tell", "purse"))
	n := cluster.Nodes()[0]
	var deadLetters []deadLetter
	cluster.Await("the dead letter", func() bool {
		text, code := n.Run("entity", "deadletters", "ls", "-o", "json", "--addr", n.API())
		return code == 0 && json.Unmarshal([]byte(text), &deadLetters) == nil && len(deadLetters) > 0
	})
	if l := deadLetters[0]; len(deadLetters) != 1 || l.Code != "not_accepted" || l.Entity != "purse/x" || l.Source != "stranger/s" {
		t.Errorf("dead letters: %+v", deadLetters)
	}
	if text, code := n.Run("entity", "deadletters", "retry", deadLetters[0].ID, "--addr", n.API()); code != 1 || !strings.Contains(text, "does not accept messages from the sender's type") {
		t.Errorf("it is delivered again: %d %s", code, text)
	}
	if s := queryNode[namedState](t, c, "stranger", "x"); s.Amount != 0 {
		t.Errorf("the stranger heard of purses: %+v", s)
	}

	if text, code := n.Run("module", "describe", "purse", "--addr", n.API()); code != 0 || !strings.Contains(text, `sends [], acceptsFrom ["saga"]`) {
		t.Errorf("module describe: %d\n%s", code, text)
	}
	if text, code := n.Run("module", "describe", "saga", "--addr", n.API()); code != 0 || !strings.Contains(text, `sends ["purse","vault-*"], acceptsFrom ["purse","vault-*"]`) {
		t.Errorf("module describe: %d\n%s", code, text)
	}
}
