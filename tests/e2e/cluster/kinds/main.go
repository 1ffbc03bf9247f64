// Kinds has an entity type of each special kind: a type that stores its state
// and no events, a type with a single entity, a type whose entities are always
// on, a type with a schedule, and a type that stores nothing.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// Count is the state and the reply.
type Count struct {
	Total int64 `json:"total"`
}

// Added is the event of an addition, and Ticked the event of a tick.
type (
	Added  struct{}
	Ticked struct {
		Due int64 `json:"due"`
	}
)

// Repeat starts a schedule.
type Repeat struct {
	EveryMs int64 `json:"everyMs"`
}

func total(t *hostd.Type[Count]) *hostd.Type[Count] {
	hostd.Query(t, "total", func(_ *hostd.View, s *Count, _ hostd.None) (Count, error) { return *s, nil })
	return t
}

// sourced declares an event-sourced type.
func sourced(name string, options ...hostd.Option) *hostd.Type[Count] {
	t := hostd.Entity[Count](name, hostd.JSON, append(options, hostd.SnapshotEvery(20))...)
	hostd.Event(t, "added", func(s *Count, _ Added) { s.Total++ })
	hostd.Event(t, "ticked", func(*Count, Ticked) {})
	hostd.Command(t, "add", func(c *hostd.Context, s *Count, _ hostd.None) (Count, error) {
		c.Emit(Added{})
		return *s, nil
	})
	hostd.Command(t, "repeat", func(c *hostd.Context, s *Count, r Repeat) (Count, error) {
		c.Schedule("clock", hostd.Schedule{Every: hostd.Duration(r.EveryMs) * hostd.Millisecond, Missed: hostd.MissedAll, Command: "tick"})
		return *s, nil
	})
	hostd.Command(t, "tick", func(c *hostd.Context, s *Count, _ hostd.None) (Count, error) {
		c.Emit(Ticked{int64(c.Due())})
		return *s, nil
	})
	hostd.Command(t, "rest", func(c *hostd.Context, s *Count, _ hostd.None) (Count, error) {
		c.CancelTimer("clock")
		return *s, nil
	})
	return total(t)
}

// changed adds commands that change the state in place.
func changed(t *hostd.Type[Count]) *hostd.Type[Count] {
	hostd.Command(t, "add", func(_ *hostd.Context, s *Count, _ hostd.None) (Count, error) {
		s.Total++
		return *s, nil
	})
	return total(t)
}

var _ = hostd.Serve("kinds", "1.0.0",
	changed(hostd.Durable[Count]("latest", hostd.JSON, hostd.PassivateAfter(50*hostd.Millisecond))),
	sourced("single", hostd.Singleton()),
	sourced("kept", hostd.AlwaysOn()),
	sourced("clock", hostd.PassivateAfter(50*hostd.Millisecond)),
	changed(hostd.Transient[Count]("fleeting", hostd.JSON, hostd.PassivateAfter(50*hostd.Millisecond))))

func main() {}
