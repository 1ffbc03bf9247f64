// Now is the version after Before. It reads Before's states, and writes some
// states that Before cannot read.
package main

import (
	"strconv"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// State is the state of a draft. Its words are a number or a text.
type State struct {
	Words hostd.RawJSON `json:"words"`
}

// Write is the command that adds words.
type Write struct {
	Words int64 `json:"words"`
}

// Type declares the entity type.
func Type() *hostd.Type[State] {
	drafts := hostd.Durable[State]("draft", hostd.JSON)
	hostd.Command(drafts, "write", func(_ *hostd.Context, s *State, w Write) (State, error) {
		were, _ := strconv.ParseInt(string(s.Words), 10, 64) // if the words are a text, the number is zero
		s.Words = hostd.RawJSON(strconv.FormatInt(were+w.Words, 10))
		return *s, nil
	})
	hostd.Command(drafts, "spell", func(_ *hostd.Context, s *State, _ hostd.None) (State, error) {
		s.Words = hostd.RawJSON(`"many"`)
		return *s, nil
	})
	hostd.Query(drafts, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return drafts
}

var _ = hostd.Serve("drafts", "2.0.0", Type())

func main() {}
