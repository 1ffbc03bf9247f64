// Slow is Fixed with events that are slow to evolve. The states are the same.
package main

import (
	"strings"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// State is the state of a ledger.
type State struct {
	Total int64 `json:"total"`
}

// Added is the event.
type Added struct {
	Amount int64 `json:"amount"`
}

// reply is so long that a few replies fill the idempotency window, so that
// events are truncated early.
var reply = strings.Repeat("x", 200_000)

// Type declares the entity type.
func Type() *hostd.Type[State] {
	ledger := hostd.Entity[State]("ledger", hostd.JSON, hostd.SnapshotEvery(5), hostd.RetainSnapshots(1), hostd.CutEvents())
	hostd.Event(ledger, "added", func(s *State, e Added) {
		spent := 0
		for i := range 3_000_000 {
			spent ^= i
		}
		s.Total += e.Amount + int64(spent>>32)
	})
	hostd.Command(ledger, "add", func(c *hostd.Context, s *State, cmd Added) (string, error) {
		c.Emit(cmd)
		return reply, nil
	})
	hostd.Query(ledger, "total", func(_ *hostd.View, s *State, _ hostd.None) (int64, error) { return s.Total, nil })
	return ledger
}

var _ = hostd.Serve("ledger", "1.0.2", Type())

func main() {}
