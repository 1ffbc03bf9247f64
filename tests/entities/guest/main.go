// Guest is an entity that does what the tests of an entity's life need: it
// counts, sets and cancels timers, and deletes itself.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State of an alarm.
type State struct {
	Total int64 `json:"total"`
	Rung  int64 `json:"rung"`
}

// Add is a command that adds an amount.
type Add struct {
	Amount int64 `json:"amount"`
}

// Arm sets a timer, again and again for so many times.
type Arm struct {
	Name    string `json:"name"`
	AfterMs int64  `json:"afterMs"`
	Times   int64  `json:"times"`
}

// Disarm cancels a timer.
type Disarm struct {
	Name string `json:"name"`
}

// Events.
type (
	Added struct {
		Amount int64 `json:"amount"`
	}
	Rang struct {
		Name string `json:"name"`
	}
)

func arm(c *hostd.Context, a Arm) {
	c.SetTimer(a.Name, c.Now().Add(hostd.Duration(a.AfterMs)*hostd.Millisecond), "ring", a)
}

// Alarm declares the entity type.
func Alarm() *hostd.Type[State] {
	alarm := hostd.Entity[State]("alarm", hostd.JSON, hostd.SnapshotEvery(10))

	hostd.Event(alarm, "added", func(s *State, e Added) { s.Total += e.Amount })
	hostd.Event(alarm, "rang", func(s *State, _ Rang) { s.Rung++ })

	hostd.Command(alarm, "add", func(c *hostd.Context, s *State, cmd Add) (State, error) {
		c.Emit(Added{cmd.Amount})
		return *s, nil
	})
	hostd.Command(alarm, "arm", func(c *hostd.Context, s *State, cmd Arm) (State, error) {
		arm(c, cmd)
		return *s, nil
	})
	hostd.Command(alarm, "disarm", func(c *hostd.Context, s *State, cmd Disarm) (State, error) {
		c.CancelTimer(cmd.Name)
		return *s, nil
	})
	hostd.Command(alarm, "ring", func(c *hostd.Context, s *State, cmd Arm) (State, error) {
		if cmd.Times < 0 {
			return State{}, hostd.Reject("broken", "this timer is refused")
		}
		c.Emit(Rang{cmd.Name})
		if cmd.Times--; cmd.Times > 0 {
			arm(c, cmd)
		}
		return *s, nil
	})
	hostd.Command(alarm, "remove", func(c *hostd.Context, s *State, _ hostd.None) (State, error) {
		c.Delete()
		return *s, nil
	})
	hostd.Query(alarm, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return alarm
}

var _ = hostd.Serve("alarm", "1.0.0", Alarm())

func main() {}
