// The module with which hostd bench measures the lives of entities: a counter
// that leaves memory on command, an entity whose state has any wanted size,
// an entity that sets timers, and an always-on entity.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// Total is the reply of commands and queries.
type Total struct {
	Total int64 `json:"total"`
}

// Add is the command and the event that add an amount.
type Add struct {
	Amount int64 `json:"amount"`
}

// Counter is the counter of the examples, with a command to leave memory.
// Without that command it stays in memory for the whole measurement.
func Counter() *hostd.Type[Total] {
	t := hostd.Entity[Total]("bench-counter", hostd.JSON, hostd.PassivateAfter(3600*1000*hostd.Millisecond))
	hostd.Event(t, "added", func(s *Total, e Add) { s.Total += e.Amount })
	hostd.Command(t, "add", func(c *hostd.Context, s *Total, cmd Add) (Total, error) {
		c.Emit(cmd)
		return *s, nil
	})
	hostd.Command(t, "leave", func(c *hostd.Context, s *Total, _ hostd.None) (Total, error) {
		c.Passivate()
		return *s, nil
	})
	hostd.Query(t, "total", func(_ *hostd.View, s *Total, _ hostd.None) (Total, error) { return *s, nil })
	return t
}

// AlwaysOn is an always-on counter. Entities whose ids are equal up to a dash
// share a shard.
func AlwaysOn() *hostd.Type[Total] {
	t := hostd.Entity[Total]("bench-remembered", hostd.JSON, hostd.AlwaysOn(), hostd.ShardKey("bench-remembered", "-"))
	hostd.Event(t, "added", func(s *Total, e Add) { s.Total += e.Amount })
	hostd.Command(t, "add", func(c *hostd.Context, s *Total, cmd Add) (Total, error) {
		c.Emit(cmd)
		return *s, nil
	})
	return t
}

// Pages is a state that consists of pages of text.
type Pages struct {
	Pages []string `json:"pages"`
	Total int64    `json:"total"`
}

// Write is the command and the event that append a page.
type Write struct {
	Page string `json:"page"`
}

// Book is an entity whose state grows by pages, and that also counts.
func Book() *hostd.Type[Pages] {
	t := hostd.Entity[Pages]("bench-book", hostd.JSON)
	hostd.Event(t, "written", func(s *Pages, e Write) { s.Pages = append(s.Pages, e.Page) })
	hostd.Event(t, "added", func(s *Pages, e Add) { s.Total += e.Amount })
	hostd.Command(t, "write", func(c *hostd.Context, s *Pages, cmd Write) (Total, error) {
		c.Emit(cmd)
		return Total{s.Total}, nil
	})
	hostd.Command(t, "add", func(c *hostd.Context, s *Pages, cmd Add) (Total, error) {
		c.Emit(cmd)
		return Total{s.Total}, nil
	})
	return t
}

// Set is the command that sets the timer, with the time in milliseconds since
// 1970.
type Set struct {
	Due int64 `json:"due"`
}

// Rung is the event of a timer that fired.
type Rung struct{}

// Alarm is an entity with a timer that counts how often it fired.
func Alarm() *hostd.Type[Total] {
	t := hostd.Entity[Total]("bench-alarm", hostd.JSON)
	hostd.Event(t, "rung", func(s *Total, _ Rung) { s.Total++ })
	hostd.Command(t, "set", func(c *hostd.Context, s *Total, cmd Set) (Total, error) {
		c.SetTimer("alarm", hostd.Instant(cmd.Due)*hostd.Instant(hostd.Millisecond), "ring", nil)
		return *s, nil
	})
	hostd.Command(t, "ring", func(c *hostd.Context, s *Total, _ hostd.None) (Total, error) {
		c.Emit(Rung{})
		return *s, nil
	})
	hostd.Query(t, "total", func(_ *hostd.View, s *Total, _ hostd.None) (Total, error) { return *s, nil })
	return t
}

var _ = hostd.Serve("bench", "1.0.0", Counter(), Book(), Alarm(), AlwaysOn())

func main() {}
