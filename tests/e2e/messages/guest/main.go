// Guest has two entity types for the tests of messages: a source counts the
// messages that it sends to each sink, and a sink records whether all of them
// arrived once and in order.
package main

import (
	"strconv"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// Source is the state of a source: the number of messages to each sink, and the
// number of replies.
type Source struct {
	Sent     map[string]int64 `json:"sent"`
	Answers  int64            `json:"answers"`
	Disorder int64            `json:"disorder"`
}

// Emit is a command that sends a few messages to each of several sinks,
// beginning with the first.
type Emit struct {
	First  int64 `json:"first"`
	Sinks  int64 `json:"sinks"`
	Each   int64 `json:"each"`
	Answer bool  `json:"answer"`
}

// Take is the message to a sink.
type Take struct {
	From   string `json:"from"`
	Number int64  `json:"number"`
}

// Sink is the state of a sink: the last number from each source, and the number
// of messages that were out of order.
type Sink struct {
	Heard    map[string]int64 `json:"heard"`
	Disorder int64            `json:"disorder"`
}

// Events.
type (
	Sent struct {
		To    string `json:"to"`
		Times int64  `json:"times"`
	}
	Answered struct {
		Right bool `json:"right"`
	}
)

func source() *hostd.Type[Source] {
	t := hostd.Entity[Source]("source", hostd.JSON, hostd.SnapshotEvery(50))
	hostd.Event(t, "sent", func(s *Source, e Sent) {
		if s.Sent == nil {
			s.Sent = map[string]int64{}
		}
		s.Sent[e.To] += e.Times
	})
	hostd.Event(t, "answered", func(s *Source, e Answered) {
		if s.Answers++; !e.Right {
			s.Disorder++
		}
	})
	hostd.Command(t, "emit", func(c *hostd.Context, s *Source, cmd Emit) (hostd.None, error) {
		for i := range cmd.Sinks {
			to := strconv.FormatInt(cmd.First+i, 10)
			first := s.Sent[to]
			c.Emit(Sent{to, cmd.Each})
			for n := range cmd.Each {
				take := Take{c.EntityID(), first + n + 1}
				if cmd.Answer {
					c.SendWithAnswer("sink", to, "take", take, hostd.Answer{OnReply: "taken", OnReject: "refused"})
				} else {
					c.Send("sink", to, "take", take)
				}
			}
		}
		return hostd.None{}, nil
	})
	hostd.Command(t, "taken", func(c *hostd.Context, s *Source, cmd Take) (hostd.None, error) {
		c.Emit(Answered{cmd.From == c.EntityID()})
		return hostd.None{}, nil
	})
	hostd.Command(t, "refused", func(c *hostd.Context, s *Source, _ hostd.None) (hostd.None, error) {
		c.Emit(Answered{false})
		return hostd.None{}, nil
	})
	hostd.Command(t, "to", func(c *hostd.Context, s *Source, cmd Addressed) (hostd.None, error) {
		if cmd.Type == "" || cmd.ID == "" || cmd.Command == "" {
			return hostd.None{}, hostd.Reject("invalid_send", "type, id and command are needed")
		}
		c.Emit(Sent{cmd.Type + "/" + cmd.Command, 1})
		c.Send(cmd.Type, cmd.ID, cmd.Command, Take{c.EntityID(), 1})
		return hostd.None{}, nil
	})
	hostd.Query(t, "state", func(_ *hostd.View, s *Source, _ hostd.None) (Source, error) { return *s, nil })
	return t
}

// Addressed is a command that sends a message to the given destination.
type Addressed struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Command string `json:"command"`
}

func sink() *hostd.Type[Sink] {
	t := hostd.Entity[Sink]("sink", hostd.JSON, hostd.SnapshotEvery(50))
	hostd.Event(t, "taken", func(s *Sink, e Take) {
		if s.Heard == nil {
			s.Heard = map[string]int64{}
		}
		if e.Number != s.Heard[e.From]+1 {
			s.Disorder++
		}
		s.Heard[e.From]++
	})
	hostd.Command(t, "take", func(c *hostd.Context, s *Sink, cmd Take) (Take, error) {
		c.Emit(cmd)
		return cmd, nil
	})
	hostd.Command(t, "refuse", func(c *hostd.Context, s *Sink, cmd Take) (Take, error) {
		if s.Heard["open"] == 0 {
			return Take{}, hostd.Reject("closed", "this sink is closed")
		}
		c.Emit(cmd)
		return cmd, nil
	})
	hostd.Command(t, "trap", func(_ *hostd.Context, _ *Sink, cmd Take) (Take, error) {
		if cmd.From != "" {
			panic("trap")
		}
		return cmd, nil
	})
	hostd.Command(t, "open", func(c *hostd.Context, s *Sink, cmd hostd.None) (hostd.None, error) {
		c.Emit(Take{"open", s.Heard["open"] + 1})
		return hostd.None{}, nil
	})
	hostd.Query(t, "state", func(_ *hostd.View, s *Sink, _ hostd.None) (Sink, error) { return *s, nil })
	return t
}

var _ = hostd.Serve("sends", "1.0.0", source(), sink())

func main() {}
