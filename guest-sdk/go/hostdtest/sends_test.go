package hostdtest

import (
	"strings"
	"testing"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

type none struct{}

// teller sends to any given type and id, and counts the messages that it
// receives.
func teller(name string, options ...hostd.Option) *hostd.Type[state] {
	type told struct{ Type, ID, Command string }
	e := hostd.Entity[state](name, hostd.JSON, options...)
	hostd.Event(e, "heard", func(s *state, _ none) { s.N++ })
	hostd.Command(e, "tell", func(c *hostd.Context, _ *state, cmd told) (hostd.None, error) {
		c.Send(cmd.Type, cmd.ID, cmd.Command, nil)
		return hostd.None{}, nil
	})
	hostd.Command(e, "ask", func(c *hostd.Context, _ *state, cmd told) (hostd.None, error) {
		c.SendWithAnswer(cmd.Type, cmd.ID, cmd.Command, nil, hostd.Answer{OnReply: "hear", OnReject: "hear"})
		return hostd.None{}, nil
	})
	hostd.Command(e, "refuse", func(c *hostd.Context, _ *state, cmd told) (hostd.None, error) {
		c.Send(cmd.Type, cmd.ID, cmd.Command, nil)
		return hostd.None{}, hostd.Reject("no", "nothing is sent")
	})
	hostd.Command(e, "hear", func(c *hostd.Context, _ *state, _ hostd.None) (hostd.None, error) {
		c.Emit(none{})
		return hostd.None{}, nil
	})
	return e
}

func to(entityType, id string) map[string]string {
	return map[string]string{"Type": entityType, "ID": id, "Command": "hear"}
}

// TestWorldEnforcesSendsAndAcceptsFrom checks that a send to a type that Sends
// does not list fails the test, and that a message from a type that AcceptsFrom
// does not list is rejected.
func TestWorldEnforcesSendsAndAcceptsFrom(t *testing.T) {
	types := func() []hostd.Registration {
		return []hostd.Registration{
			teller("a", hostd.Sends("b-*"), hostd.AcceptsFrom("b-1")), teller("b-1", hostd.Sends()), teller("b-2", hostd.AcceptsFrom("c")), teller("c"),
		}
	}
	w := NewWorld(t, 1, types()...)
	w.Command("a", "x", "ask", to("b-1", "y")) // b-1 replies, regardless of its Sends
	w.Command("a", "x", "ask", to("b-2", "y")) // b-2 does not accept the message; the sender receives the rejection
	w.Command("a", "x", "tell", to("b-2", "y"))
	w.Command("c", "x", "tell", to("b-2", "y"))
	w.Command("a", "x", "tell", to("a", "x")) // an entity may send to itself
	w.Command("a", "x", "refuse", to("c", "x"))
	w.Run()
	heard := func(entityType, id string) string {
		return string(w.guest.Snapshot(w.entity(name{entityType, id}).handle))
	}
	if got := []string{heard("a", "x"), heard("b-1", "y"), heard("b-2", "y")}; strings.Join(got, " ") != `{"N":3,"Hidden":0} {"N":1,"Hidden":0} {"N":1,"Hidden":0}` {
		t.Errorf("they heard %q", got)
	}
	var codes []string
	for _, l := range w.DeadLetters() {
		codes = append(codes, l.FromType+" "+l.ToType+" "+l.Code)
	}
	// The answer of b-2, which the host sends on its behalf, is accepted.
	if got := strings.Join(codes, ", "); got != "a b-2 not_accepted" {
		t.Errorf("dead letters: %s", got)
	}
	for _, to := range []map[string]string{to("c", "x"), to("a", "other")} {
		text := record(func(t testing.TB) { NewWorld(t, 1, types()...).Command("a", "x", "tell", to) })
		if !strings.Contains(text, "tell of a/x sends to "+to["Type"]+", which the type's Sends does not name") {
			t.Errorf("to %v: %q", to, text)
		}
	}
}

// TestDriverEnforcesSendsAndAcceptsFrom checks that the driver enforces Sends
// and AcceptsFrom in the same way.
func TestDriverEnforcesSendsAndAcceptsFrom(t *testing.T) {
	made := func(t testing.TB) *Driver[state] {
		return New(t, teller("a", hostd.Sends("b"), hostd.AcceptsFrom("b")))
	}
	if text := record(func(t testing.TB) { made(t).When("tell", to("c", "x")) }); !strings.Contains(text, "tell sends to c, which the type's Sends does not name") {
		t.Errorf("%q", text)
	}
	d := made(t)
	d.When("tell", to("b", "x"))
	d.When("tell", to("a", "test"))
	d.From("b", "x").When("hear", nil).Events(none{})
	d.From("a", "test").When("hear", nil).Events(none{})
	d.From("a", "other").When("hear", nil).Rejected(CodeNotAccepted)
	d.From("c", "x").When("hear", nil).Rejected(CodeNotAccepted)
}
