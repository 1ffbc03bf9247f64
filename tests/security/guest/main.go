// Deed is an entity that belongs to the first caller that takes it. It uses the
// authenticated caller that the node passes to it.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State is the state of a deed.
type State struct {
	Owner string `json:"owner"`
}

// Taken is the event of the first owner.
type Taken struct {
	By string `json:"by"`
}

// Caller is the caller as the guest receives it.
type Caller struct {
	Kind   string   `json:"kind"`
	Name   string   `json:"name"`
	Groups []string `json:"groups"`
	Known  bool     `json:"known"`
}

// Deeds declares the entity type.
func Deeds() *hostd.Type[State] {
	deed := hostd.Entity[State]("deed", hostd.JSON, hostd.RecordPrincipal())
	hostd.Event(deed, "taken", func(s *State, e Taken) { s.Owner = e.By })
	hostd.Command(deed, "take", func(c *hostd.Context, s *State, _ hostd.None) (Caller, error) {
		p, known := c.Principal()
		switch {
		case !known:
			return Caller{}, hostd.Reject("unknown", "the caller is anonymous")
		case s.Owner != "" && s.Owner != p.Name:
			return Caller{}, hostd.Reject("not_yours", "the entity belongs to a different caller")
		}
		c.Emit(Taken{By: p.Name})
		return Caller{p.Kind, p.Name, p.Groups, known}, nil
	})
	hostd.Query(deed, "caller", func(v *hostd.View, _ *State, _ hostd.None) (Caller, error) {
		p, known := v.Principal()
		return Caller{p.Kind, p.Name, p.Groups, known}, nil
	})
	return deed
}

func init() { hostd.Serve("deed", "1.0.0", Deeds()) }

func main() {}
