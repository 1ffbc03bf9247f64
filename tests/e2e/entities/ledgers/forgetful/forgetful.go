// Forgetful is Migrated with a migration that loses the state.
package main

import (
	"strings"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// StateV1 is the previous state of a ledger.
type StateV1 struct {
	Total int64 `json:"total"`
}

// State is the state of a ledger.
type State struct {
	Sum int64 `json:"sum"`
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
	hostd.MigrateState(ledger, 1, func(StateV1) State { return State{} })
	hostd.Event(ledger, "added", func(s *State, e Added) { s.Sum += e.Amount })
	hostd.Command(ledger, "add", func(c *hostd.Context, s *State, cmd Added) (string, error) {
		c.Emit(cmd)
		return reply, nil
	})
	hostd.Query(ledger, "total", func(_ *hostd.View, s *State, _ hostd.None) (int64, error) { return s.Sum, nil })
	return ledger
}

var _ = hostd.Serve("ledger", "2.0.0", Type())

func main() {}
