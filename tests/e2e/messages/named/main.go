// Named is a module for the tests of types that declare to which types they
// send and from which types they accept messages. It has a saga whose second
// step is not accepted, and commands that try to circumvent the declarations.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State is the amount, and the state of the saga.
type State struct {
	Amount int64  `json:"amount"`
	Saga   string `json:"saga"`
	Reason string `json:"reason"`
}

// Refusal is the payload of a rejected step.
type Refusal struct {
	Code string `json:"code"`
}

// Address is the destination of a command's message.
type Address struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Command string `json:"command"`
}

// Events.
type (
	Moved struct {
		By int64 `json:"by"`
	}
	Went struct {
		Saga   string `json:"saga"`
		Reason string `json:"reason"`
	}
)

func entity(name string, options ...hostd.Option) *hostd.Type[State] {
	t := hostd.Entity[State](name, hostd.JSON, options...)
	hostd.Event(t, "moved", func(s *State, e Moved) { s.Amount += e.By })
	hostd.Event(t, "went", func(s *State, e Went) {
		if s.Saga = e.Saga; e.Reason != "" {
			s.Reason = e.Reason
		}
	})
	move := func(by int64) func(*hostd.Context, *State, hostd.None) (hostd.None, error) {
		return func(c *hostd.Context, _ *State, _ hostd.None) (hostd.None, error) {
			c.Emit(Moved{by})
			return hostd.None{}, nil
		}
	}
	hostd.Command(t, "put", move(1))
	hostd.Command(t, "take", move(-1))
	hostd.Command(t, "tell", func(c *hostd.Context, _ *State, to Address) (hostd.None, error) {
		c.Emit(Moved{1})
		c.Send(to.Type, to.ID, to.Command, nil)
		return hostd.None{}, nil
	})
	hostd.Command(t, "later", func(c *hostd.Context, _ *State, to Address) (hostd.None, error) {
		c.SetTimer("later", c.Now(), "tell", to)
		return hostd.None{}, nil
	})
	hostd.Query(t, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return t
}

// saga moves an amount from a purse into a vault, or back into the
// purse.
func saga() *hostd.Type[State] {
	t := entity("saga", hostd.Sends("purse", "vault-*"), hostd.AcceptsFrom("purse", "vault-*"))
	hostd.Command(t, "start", func(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
		c.Emit(Went{"taking", ""})
		c.SendWithAnswer("purse", c.EntityID(), "take", nil, hostd.Answer{OnReply: "taken", OnReject: "lost"})
		return hostd.None{}, nil
	})
	hostd.Command(t, "taken", func(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
		c.Emit(Went{"putting", ""})
		c.SendWithAnswer("vault-closed", "v", "put", nil, hostd.Answer{OnReply: "done", OnReject: "refused"})
		return hostd.None{}, nil
	}, hostd.Internal())
	hostd.Command(t, "refused", func(c *hostd.Context, s *State, why Refusal) (hostd.None, error) {
		c.Emit(Went{"returning", why.Code})
		c.SendWithAnswer("purse", c.EntityID(), "put", nil, hostd.Answer{OnReply: "returned", OnReject: "lost"})
		return hostd.None{}, nil
	}, hostd.Internal())
	for _, end := range []string{"done", "returned", "lost"} {
		hostd.Command(t, end, func(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
			c.Emit(Went{end, ""})
			return hostd.None{}, nil
		}, hostd.Internal())
	}
	return t
}

var _ = hostd.Serve("named", "1.0.0",
	saga(),
	entity("purse", hostd.Sends(), hostd.AcceptsFrom("saga")),
	entity("vault-closed", hostd.AcceptsFrom("auditor")),
	entity("stranger"),
)

func main() {}
