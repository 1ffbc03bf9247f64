// Guest has two entity types that use every feature of an entity's lifecycle
// and check its rules: "whole" keeps all its events, "brief" only a few.
package main

import (
	"strconv"
	"strings"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// State is the state of either type.
type State struct {
	Acts     int64             `json:"acts"`
	Armed    map[string]string `json:"armed"` // tokens of pending timers, by name
	Set      int64             `json:"set"`   // number of timers set
	Ended    int64             `json:"ended"` // number of timers that were cancelled or replaced
	Rang     int64             `json:"rang"`
	Heard    map[string]Line   `json:"heard"` // received messages by source
	Awaited  int64             `json:"awaited"`
	Answered int64             `json:"answered"`
	Stray    int64             `json:"stray"` // number of messages and timers that should not have arrived
}

// Line has the number of messages from one source, and a digest of these
// messages in order.
type Line struct {
	Count  int64 `json:"count"`
	Digest int64 `json:"digest"`
}

// Act is a command whose fields say which effects it has.
type Act struct {
	Sends   []To   `json:"sends"`
	Timer   string `json:"timer"`
	AfterMs int64  `json:"afterMs"`
	Cancel  string `json:"cancel"`
	More    int64  `json:"more"`  // number of additional events
	Reply   int64  `json:"reply"` // size of the reply in bytes
	Leave   bool   `json:"leave"` // leave memory after the command
}

// To is a message of an act.
type To struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Answer bool   `json:"answer"`
}

// Reply is the reply to an act.
type Reply struct {
	Acts int64  `json:"acts"`
	Pad  string `json:"pad"`
}

// Take is the payload of a message.
type Take struct {
	From  string `json:"from"`
	Token string `json:"token"`
}

// Events.
type (
	Acted struct {
		Awaited int64  `json:"awaited"`
		Timer   string `json:"timer"`
		Token   string `json:"token"`
		Due     int64  `json:"due"`
		Cancel  string `json:"cancel"`
	}
	Noted struct {
		Number int64 `json:"number"`
	}
	Rang struct {
		Name  string `json:"name"`
		Token string `json:"token"`
		Due   int64  `json:"due"`
	}
	Taken    Take
	Answered Take
)

// Mix adds a token to a digest.
func Mix(digest int64, token string) int64 {
	h := uint64(digest)
	for i := range len(token) {
		h = (h ^ uint64(token[i])) * 1099511628211
	}
	return int64(h >> 1) // an integer that JSON can represent in any language
}

func (s *State) end(timer string) {
	if _, set := s.Armed[timer]; set {
		delete(s.Armed, timer)
		s.Ended++
	}
}

func declare(name string, options ...hostd.Option) *hostd.Type[State] {
	t := hostd.Entity[State](name, hostd.JSON, append(options, hostd.SnapshotEvery(5), hostd.PassivateAfter(50*hostd.Millisecond))...)
	hostd.Event(t, "acted", func(s *State, e Acted) {
		s.Acts++
		s.Awaited += e.Awaited
		if e.Cancel != "" {
			s.end(e.Cancel)
		}
		if e.Timer != "" {
			s.end(e.Timer)
			if s.Armed == nil {
				s.Armed = map[string]string{}
			}
			s.Armed[e.Timer] = e.Token
			s.Set++
		}
	})
	hostd.Event(t, "noted", func(*State, Noted) {})
	hostd.Event(t, "rang", func(s *State, e Rang) {
		if s.Armed[e.Name] != e.Token {
			s.Stray++
			return
		}
		delete(s.Armed, e.Name)
		s.Rang++
	})
	hostd.Event(t, "taken", func(s *State, e Taken) {
		if s.Heard == nil {
			s.Heard = map[string]Line{}
		}
		l := s.Heard[e.From]
		s.Heard[e.From] = Line{l.Count + 1, Mix(l.Digest, e.Token)}
	})
	hostd.Event(t, "answered", func(s *State, _ Answered) { s.Answered++ })

	hostd.Command(t, "act", act)
	hostd.Command(t, "ring", func(c *hostd.Context, s *State, cmd Rang) (hostd.None, error) {
		c.Emit(Rang{cmd.Name, cmd.Token, int64(c.Due())})
		return hostd.None{}, nil
	})
	hostd.Command(t, "take", func(c *hostd.Context, s *State, cmd Take) (Take, error) {
		c.Emit(Taken(cmd), "taken")
		return cmd, nil
	})
	hostd.Command(t, "answered", func(c *hostd.Context, s *State, cmd Take) (hostd.None, error) {
		c.Emit(Answered(cmd))
		return hostd.None{}, nil
	})
	hostd.Command(t, "remove", func(c *hostd.Context, s *State, _ hostd.None) (hostd.None, error) {
		c.Delete()
		return hostd.None{}, nil
	})
	hostd.Query(t, "state", func(_ *hostd.View, s *State, _ hostd.None) (State, error) { return *s, nil })
	return t
}

func act(c *hostd.Context, s *State, cmd Act) (Reply, error) {
	e := Acted{Cancel: cmd.Cancel, Timer: cmd.Timer, Token: c.CommandID()}
	if cmd.Cancel != "" {
		c.CancelTimer(cmd.Cancel)
	}
	if cmd.Timer != "" {
		e.Due = int64(c.Now().Add(hostd.Duration(cmd.AfterMs) * hostd.Millisecond))
		c.SetTimer(cmd.Timer, hostd.Instant(e.Due), "ring", Rang{Name: cmd.Timer, Token: e.Token})
	}
	from := c.EntityType() + "/" + c.EntityID()
	for i, to := range cmd.Sends {
		take := Take{from, e.Token + "#" + strconv.Itoa(i)}
		if to.Answer {
			e.Awaited++
			c.SendWithAnswer(to.Type, to.ID, "take", take, hostd.Answer{OnReply: "answered", OnReject: "refused"})
		} else {
			c.Send(to.Type, to.ID, "take", take)
		}
	}
	c.Emit(e, "acted")
	for i := range cmd.More {
		c.Emit(Noted{i})
	}
	if cmd.Leave {
		c.Passivate()
	}
	return Reply{s.Acts, strings.Repeat("x", int(cmd.Reply))}, nil
}

var _ = hostd.Serve("chaos", "1.0.0",
	declare("whole"), declare("brief", hostd.RetainSnapshots(2), hostd.RetainEvents(10)))

func main() {}
