// Later is a later version of the type trail in the tests' guest: each amount
// counts twice, and entities leave memory soon.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State is the state of a trail.
type State struct {
	Total int64 `json:"total"`
	Rung  int64 `json:"rung"`
}

// Amount is the payload of a command.
type Amount struct {
	Amount int64 `json:"amount"`
}

// Added is an event.
type Added Amount

// Trail declares the entity type.
func Trail() *hostd.Type[State] {
	trail := hostd.Entity[State]("trail", hostd.JSON, hostd.SnapshotEvery(50), hostd.RetainSnapshots(2), hostd.RetainEvents(100), hostd.PassivateAfter(300*hostd.Millisecond))
	hostd.Event(trail, "added", func(s *State, e Added) { s.Total += 2 * e.Amount })
	hostd.Command(trail, "add", func(c *hostd.Context, s *State, cmd Amount) (State, error) {
		c.Emit(Added(cmd))
		return *s, nil
	})
	hostd.Query(trail, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return trail
}

var _ = hostd.Serve("trail", "2.0.0", Trail())

func main() {}
