// Teller is an entity that writes log lines in every way in which a guest can,
// and forwards each word to another entity.
package main

import (
	"fmt"
	"os"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// State is the state of a teller.
type State struct {
	Words []string `json:"words"`
}

// Say is the command with the word to log.
type Say struct {
	Word string `json:"word"`
	To   string `json:"to,omitempty"`
}

// Said is the event of a Say command.
type Said struct {
	Word string `json:"word"`
}

// Count is the reply of commands and of the query.
type Count struct {
	Words int `json:"words"`
}

// Tellers declares the entity type.
func Tellers() *hostd.Type[State] {
	teller := hostd.Entity[State]("teller", hostd.JSON)
	hostd.Event(teller, "said", func(s *State, e Said) { s.Words = append(s.Words, e.Word) })
	hostd.Command(teller, "say", func(c *hostd.Context, s *State, cmd Say) (Count, error) {
		c.Log(abi.LogWarn, "logged "+cmd.Word)
		fmt.Fprintln(os.Stderr, "written "+cmd.Word)
		if cmd.Word == "" {
			return Count{}, hostd.Reject("silent", "there is nothing to say")
		}
		c.Emit(Said{cmd.Word})
		if cmd.To != "" {
			c.Send("teller", cmd.To, "say", Say{Word: cmd.Word})
		}
		return Count{len(s.Words)}, nil
	})
	hostd.Command(teller, "break", func(_ *hostd.Context, _ *State, cmd Say) (hostd.None, error) {
		panic("broken by " + cmd.Word)
	})
	hostd.Query(teller, "count", func(_ *hostd.View, s *State, _ hostd.None) (Count, error) {
		return Count{len(s.Words)}, nil
	})
	return teller
}

var _ = hostd.Serve("teller", "1.0.0", Tellers())

func main() {}
