// Guest has entities with the features that the lifecycle tests need: they
// count, set and cancel timers, and delete themselves.
package main

import (
	"strconv"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// State is the state of an alarm.
type State struct {
	Total int64 `json:"total"`
	Rung  int64 `json:"rung"`
}

// Add is the command that adds an amount.
type Add struct {
	Amount int64 `json:"amount"`
}

// Arm sets a timer, which repeats a number of times.
type Arm struct {
	Name    string `json:"name"`
	AfterMs int64  `json:"afterMs"`
	Times   int64  `json:"times"`
}

// Repeat sets a schedule whose ticks record when they were due.
type Repeat struct {
	Name    string `json:"name"`
	EveryMs int64  `json:"everyMs"`
	Cron    string `json:"cron"`
	Zone    string `json:"zone"`
	Missed  int64  `json:"missed"`
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
	Ticked struct {
		Name string `json:"name"`
		Due  int64  `json:"due"`
	}
)

func arm(c *hostd.Context, a Arm) {
	c.SetTimer(a.Name, c.Now().Add(hostd.Duration(a.AfterMs)*hostd.Millisecond), "ring", a)
}

// Alarm declares the entity type.
func Alarm() *hostd.Type[State] {
	alarm := hostd.Entity[State]("alarm", hostd.JSON, hostd.SnapshotEvery(10))

	hostd.Event(alarm, "added", func(s *State, e Added) { s.Total += e.Amount })
	hostd.Event(alarm, "ticked", func(*State, Ticked) {})
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
	hostd.Command(alarm, "repeat", func(c *hostd.Context, s *State, cmd Repeat) (State, error) {
		c.Schedule(cmd.Name, hostd.Schedule{
			Every: hostd.Duration(cmd.EveryMs) * hostd.Millisecond, Cron: cmd.Cron, Zone: cmd.Zone, Missed: hostd.Missed(cmd.Missed),
			Command: "tick", Payload: Disarm{cmd.Name},
		})
		return *s, nil
	})
	hostd.Command(alarm, "tick", func(c *hostd.Context, s *State, cmd Disarm) (State, error) {
		c.Emit(Ticked{cmd.Name, int64(c.Due())})
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
	hostd.Command(alarm, "stray", func(c *hostd.Context, s *State, cmd Add) (State, error) {
		c.Send("chief", "deputy", "add", cmd)
		c.Send("hub", "x", "add", cmd)
		return *s, nil
	})
	hostd.Command(alarm, "break", func(_ *hostd.Context, _ *State, cmd Disarm) (State, error) {
		panic("the cupboard is bare of " + cmd.Name)
	})
	hostd.Command(alarm, "remove", func(c *hostd.Context, s *State, _ hostd.None) (State, error) {
		c.Delete()
		return *s, nil
	})
	// The event records the amount, because a replay does not know the
	// settings.
	hostd.Command(alarm, "add-setting", func(c *hostd.Context, s *State, _ hostd.None) (State, error) {
		text, ok := c.Setting("amount")
		if !ok {
			return *s, hostd.Reject("not_set", "")
		}
		amount, err := strconv.ParseInt(text, 10, 64)
		if err == nil {
			c.Emit(Added{amount})
		}
		return *s, err
	})
	hostd.Query(alarm, "setting", func(v *hostd.View, _ *State, _ hostd.None) (Disarm, error) {
		text, _ := v.Setting("amount")
		return Disarm{text}, nil
	})
	hostd.Query(alarm, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return alarm
}

// Keeper declares a type with always-on entities.
func Keeper() *hostd.Type[State] {
	keeper := hostd.Entity[State]("keeper", hostd.JSON, hostd.AlwaysOn())
	hostd.Event(keeper, "added", func(s *State, e Added) { s.Total += e.Amount })
	hostd.Command(keeper, "add", func(c *hostd.Context, s *State, cmd Add) (State, error) {
		c.Emit(Added{cmd.Amount})
		return *s, nil
	})
	hostd.Command(keeper, "leave", func(c *hostd.Context, s *State, _ hostd.None) (State, error) {
		c.Passivate()
		return *s, nil
	})
	hostd.Query(keeper, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return keeper
}

// Trail declares a type that retains only its last events.
func Trail() *hostd.Type[State] {
	trail := hostd.Entity[State]("trail", hostd.JSON, hostd.SnapshotEvery(50), hostd.RetainSnapshots(2), hostd.RetainEvents(100))
	hostd.Event(trail, "added", func(s *State, e Added) { s.Total += e.Amount })
	hostd.Command(trail, "add", func(c *hostd.Context, s *State, cmd Add) (State, error) {
		c.Emit(Added{cmd.Amount})
		return *s, nil
	})
	hostd.Query(trail, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return trail
}

// Hub declares a transient type.
func Hub() *hostd.Type[State] {
	hub := hostd.Transient[State]("hub", hostd.JSON)
	adds(hub)
	return hub
}

// Chief declares a transient type with a single entity.
func Chief() *hostd.Type[State] {
	chief := hostd.Transient[State]("chief", hostd.JSON, hostd.Singleton())
	adds(chief)
	return chief
}

func adds(t *hostd.Type[State]) {
	hostd.Command(t, "add", func(_ *hostd.Context, s *State, cmd Add) (State, error) {
		s.Total += cmd.Amount
		return *s, nil
	})
	hostd.Query(t, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
}

var _ = hostd.Serve("alarm", "1.0.0", Alarm(), Keeper(), Trail(), Hub(), Chief())

func main() {}
