// Counter is the smallest entity: a total, to which commands add.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State of a counter.
type State struct {
	Total int64 `json:"total"`
}

// Add is the command that adds an amount, which may be negative.
type Add struct {
	Amount int64 `json:"amount" hostd:"desc=what is added, which may be below 0"`
}

// Total is the reply of commands and of the query.
type Total struct {
	Total int64 `json:"total"`
}

// Events.
type (
	Added struct {
		Amount int64 `json:"amount"`
	}
	WasReset struct{}
)

// Counter declares the entity type.
func Counter() *hostd.Type[State] {
	counter := hostd.Entity[State]("counter", hostd.JSON)

	hostd.Event(counter, "added", func(s *State, e Added) { s.Total += e.Amount })
	hostd.Event(counter, "reset", func(s *State, _ WasReset) { s.Total = 0 })

	hostd.Command(counter, "add", func(c *hostd.Context, s *State, cmd Add) (Total, error) {
		if overflows(s.Total, cmd.Amount) {
			return Total{}, hostd.Reject("overflow", "the total would not fit 64 bits")
		}
		c.Emit(Added{cmd.Amount})
		return Total{s.Total}, nil
	})
	hostd.Command(counter, "reset", func(c *hostd.Context, s *State, _ hostd.None) (Total, error) {
		c.Emit(WasReset{})
		return Total{s.Total}, nil
	})
	hostd.Query(counter, "total", func(_ *hostd.View, s *State, _ hostd.None) (Total, error) {
		return Total{s.Total}, nil
	})
	return counter
}

func overflows(a, b int64) bool { return (a+b > a) != (b > 0) && b != 0 }

var _ = hostd.Serve("counter", "1.0.0", Counter())

func main() {}
