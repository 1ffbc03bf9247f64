// Later is a version after Before with a new state version. It reads Before's
// states by a migration, and writes states that Before does not read.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// StateV1 is the state of a draft in Before.
type StateV1 struct {
	Words int64 `json:"words"`
}

// State is the state of a draft: its words by language.
type State struct {
	English int64 `json:"english"`
	French  int64 `json:"french"`
}

// Write is the command that adds words.
type Write struct {
	Words  int64 `json:"words"`
	French bool  `json:"french"`
}

// Type declares the entity type.
func Type() *hostd.Type[State] {
	drafts := hostd.Durable[State]("draft", hostd.JSON)
	hostd.MigrateState(drafts, 1, func(old StateV1) State { return State{English: old.Words} })
	hostd.Command(drafts, "write", func(_ *hostd.Context, s *State, w Write) (State, error) {
		if w.French {
			s.French += w.Words
		} else {
			s.English += w.Words
		}
		return *s, nil
	})
	hostd.Query(drafts, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return drafts
}

var _ = hostd.Serve("drafts", "3.0.0", Type())

func main() {}
