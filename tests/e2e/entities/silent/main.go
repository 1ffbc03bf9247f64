// Silent is a later version of the type alarm in the tests' guest, without the
// commands that the alarm's timers send.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State is the state of an alarm.
type State struct {
	Total int64 `json:"total"`
	Rung  int64 `json:"rung"`
}

// Events.
type (
	Added struct {
		Amount int64 `json:"amount"`
	}
	Rang struct {
		Name string `json:"name"`
	}
	Ticked struct {
		Name string `json:"name"`
		Due  int64  `json:"due"`
	}
)

// Alarm declares the entity type.
func Alarm() *hostd.Type[State] {
	alarm := hostd.Entity[State]("alarm", hostd.JSON, hostd.SnapshotEvery(10))
	hostd.Event(alarm, "added", func(s *State, e Added) { s.Total += e.Amount })
	hostd.Event(alarm, "ticked", func(*State, Ticked) {})
	hostd.Event(alarm, "rang", func(s *State, _ Rang) { s.Rung++ })
	hostd.Command(alarm, "add", func(c *hostd.Context, s *State, cmd Added) (State, error) {
		c.Emit(cmd)
		return *s, nil
	})
	hostd.Query(alarm, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return alarm
}

var _ = hostd.Serve("silent", "2.0.0", Alarm())

func main() {}
