package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

type deadLetter struct {
	ID, Source, Entity, Command, Data, Code string
}

// TestDeadLetters checks that a rejected message, or a message to a destination
// that does not exist, is listed with the reason, is redelivered or discarded
// when an operator says so, and survives a restart.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--admin", "full"}})
	c := n.Client(client.Options{Timeout: testkit.Patience})
	if _, err := c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/messages/guest"), true); err != nil {
		t.Fatal(err)
	}
	for _, to := range [][3]string{{"sink", "x", "refuse"}, {"sink", "x", "take"}, {"ghost", "g", "boo"}, {"sink", "y", "nothing"}} {
		data := fmt.Appendf(nil, `{"type":%q,"id":%q,"command":%q}`, to[0], to[1], to[2])
		if _, err := c.Send(t.Context(), client.Command{EntityType: "source", EntityID: "s", Name: "to", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	list := func() (out []deadLetter) {
		t.Helper()
		text, code := n.Run("entity", "deadletters", "ls", "-o", "json", "--addr", n.API())
		if code != 0 {
			t.Fatalf("%d: %s", code, text)
		}
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return out
	}
	act := func(what, id, want string) {
		t.Helper()
		text, code := n.Run("entity", "deadletters", what, id, "--addr", n.API())
		if want == "" && code != 0 || want != "" && (code != 1 || !strings.Contains(text, want)) {
			t.Fatalf("%s %s: %d %s", what, id, code, text)
		}
	}
	find := func(entity string) (l deadLetter) {
		t.Helper()
		n.Await("the dead letter of "+entity, func() bool {
			all := list()
			i := slices.IndexFunc(all, func(l deadLetter) bool { return l.Entity == entity })
			if i >= 0 {
				l = all[i]
			}
			return i >= 0
		})
		return l
	}
	refused, ghost, unknown := find("sink/x"), find("ghost/g"), find("sink/y")
	if refused.Code != "closed" || refused.Command != "refuse" || refused.Source != "source/s" || !strings.Contains(refused.Data, `"from":"s"`) {
		t.Errorf("%+v", refused)
	}
	if ghost.Code != "not_found" || unknown.Code != "not_found" {
		t.Errorf("%+v %+v", ghost, unknown)
	}
	n.Kill()
	n.Start()
	if all := list(); len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	n.Await("what came after it was carried out", func() bool {
		s := queryNode[sinkState](t, c, "sink", "x")
		return s.Heard["s"] == 1
	})
	act("retry", refused.ID, "closed")
	if _, err := c.Send(t.Context(), client.Command{EntityType: "sink", EntityID: "x", Name: "open"}); err != nil {
		t.Fatal(err)
	}
	act("retry", refused.ID, "")
	act("retry", refused.ID, "the dead letter does not exist")
	if s := queryNode[sinkState](t, c, "sink", "x"); s.Heard["s"] != 2 {
		t.Errorf("%+v", s)
	}
	act("retry", ghost.ID, "") // the message is sent again, but the type still does not exist
	again := deadLetter{}
	n.Await("it comes back", func() bool { again = find("ghost/g"); return again.ID != ghost.ID })
	act("discard", again.ID, "")
	act("discard", unknown.ID, "")
	act("discard", "1-2", "the id is not that of a dead letter")
	if all := list(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	n.Await("nothing is on its way", func() bool {
		info, err := c.Entity(t.Context(), "source", "s")
		return err == nil && info.GetPendingMessages() == 0
	})
	n.Stop()
	n.MustVerify()
}

// TestOnlyAdministratorsActOnDeadLetters checks that a node without admin: full
// only lists dead letters.
func TestOnlyAdministratorsActOnDeadLetters(t *testing.T) {
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--admin", "read-only"}})
	if text, code := n.Run("entity", "deadletters", "ls", "--addr", n.API()); code != 0 {
		t.Errorf("%d: %s", code, text)
	}
	for _, what := range []string{"retry", "discard"} {
		if text, code := n.Run("entity", "deadletters", what, "1-1-0-0", "--addr", n.API()); code != 1 || !strings.Contains(text, "admin: full") {
			t.Errorf("%s: %d %s", what, code, text)
		}
	}
}

func queryNode[T any](t *testing.T, c *client.Client, entityType, id string) (out T) {
	t.Helper()
	r, err := c.Query(t.Context(), client.Query{EntityType: entityType, EntityID: id, Name: "state"})
	if err == nil {
		err = json.Unmarshal(r.Data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
