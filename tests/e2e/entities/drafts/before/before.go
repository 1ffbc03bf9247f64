// Before is the first version of a durable-state type: drafts with a number of
// words.
package main

import hostd "github.com/hostd/hostd/guest-sdk/go"

// State is the state of a draft.
type State struct {
	Words int64 `json:"words"`
}

// Write is the command that adds words.
type Write struct {
	Words int64 `json:"words"`
}

// Type declares the entity type.
func Type() *hostd.Type[State] {
	drafts := hostd.Durable[State]("draft", hostd.JSON)
	hostd.Command(drafts, "write", func(_ *hostd.Context, s *State, w Write) (State, error) {
		s.Words += w.Words
		return *s, nil
	})
	hostd.Query(drafts, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return drafts
}

var _ = hostd.Serve("drafts", "1.0.0", Type())

func main() {}
