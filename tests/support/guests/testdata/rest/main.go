// Rest uses the SDK features that the cart does not use: replies, schedules,
// call information, upcasters, durable states, and entities that stop or delete
// themselves.
package main

import (
	"fmt"
	"strings"

	hostd "github.com/hostd/hostd/guest-sdk/go"
)

type state struct {
	Items int64  `json:"items"`
	Last  string `json:"last"`
}

type placedV1 struct {
	Item string `json:"item"`
}

type placed struct {
	Count int64  `json:"count"`
	Item  string `json:"item"`
}

// call is the call information of a command or query.
type call struct {
	Command   string `json:"command"`
	Due       int64  `json:"due"`
	ID        string `json:"id"`
	Now       int64  `json:"now"`
	Principal string `json:"principal"`
	Random    string `json:"random"`
	Sequence  uint64 `json:"sequence"`
	Setting   string `json:"setting"`
	Source    string `json:"source"`
	Type      string `json:"type"`
}

type number struct {
	N int64 `json:"n"`
}

func view(v *hostd.View) call {
	c := call{ID: v.EntityID(), Now: int64(v.Now()), Sequence: v.Sequence(), Type: v.EntityType(), Principal: "nobody"}
	if p, known := v.Principal(); known {
		c.Principal = p.Kind + " " + p.Name + " " + strings.Join(p.Groups, ",")
	}
	limit, ok := v.Setting("limit")
	_, more := v.Setting("lim")
	c.Setting = fmt.Sprint(limit, " ", ok, " ", more)
	return c
}

func tell(c *hostd.Context, _ *state, _ hostd.None) (call, error) {
	told := view(&c.View)
	told.Command, told.Due, told.Random = c.CommandID(), int64(c.Due()), fmt.Sprint(c.Random(), " ", c.Random())
	switch s := c.Source(); s.Kind {
	case hostd.SourceTimer:
		told.Source = "timer"
	case hostd.SourceEntity:
		told.Source = s.EntityType + " " + s.EntityID
	default:
		told.Source = "client"
	}
	return told, nil
}

func rest() *hostd.Type[state] {
	t := hostd.Entity[state]("rest", hostd.JSON, hostd.SnapshotEvery(7), hostd.PassivateAfter(90*hostd.Second), hostd.RetainEvents(5),
		hostd.RetainSnapshots(3), hostd.AlwaysOn(), hostd.RecordPrincipal(), hostd.ShardKey("rests", "-"), hostd.AcceptsFrom("other", "rest-*"))
	hostd.Upcast(t, "placed", 1, func(old placedV1) placed { return placed{1, old.Item} })
	hostd.Event(t, "placed", func(s *state, e placed) { s.Items, s.Last = s.Items+e.Count, e.Item })
	hostd.Command(t, "place", func(c *hostd.Context, s *state, cmd placed) (state, error) {
		c.Emit(cmd, "a", "b")
		c.Emit(placed{1, cmd.Item + "!"})
		return *s, nil
	}, hostd.Rejects("full", "late"))
	hostd.Command(t, "tell", tell, hostd.Rejects())
	hostd.Command(t, "ask", func(c *hostd.Context, _ *state, _ hostd.None) (hostd.None, error) {
		c.SendWithAnswer("other", "id", "do", number{-9223372036854775808}, hostd.Answer{OnReply: "done", OnReject: "refused"})
		return hostd.None{}, nil
	})
	hostd.Command(t, "plan", func(c *hostd.Context, _ *state, _ hostd.None) (hostd.None, error) {
		c.Schedule("a", hostd.Schedule{Every: 90 * hostd.Second, Missed: hostd.MissedAll, Command: "tell"})
		c.Schedule("b", hostd.Schedule{Cron: "0 3 * * mon-fri", Zone: "Europe/Berlin", Missed: hostd.MissedSkip, Command: "place", Payload: number{1}})
		return hostd.None{}, nil
	})
	hostd.Command(t, "leave", func(c *hostd.Context, _ *state, _ hostd.None) (hostd.None, error) {
		c.Passivate()
		return hostd.None{}, nil
	})
	hostd.Command(t, "end", func(c *hostd.Context, _ *state, _ hostd.None) (hostd.None, error) {
		c.Delete()
		return hostd.None{}, nil
	})
	hostd.Query(t, "look", func(v *hostd.View, s *state, q number) (call, error) {
		if q.N != 0 {
			return call{}, hostd.Reject("no", s.Last)
		}
		return view(v), nil
	})
	return t
}

type note struct {
	Text string `json:"text"`
}

func notes() *hostd.Type[note] {
	t := hostd.Durable[note]("note", hostd.JSON, hostd.Singleton(), hostd.CutEvents(), hostd.Unchecked(), hostd.Sends())
	hostd.Command(t, "set", func(_ *hostd.Context, s *note, cmd note) (hostd.None, error) {
		s.Text = cmd.Text
		if len(cmd.Text) > 10 {
			return hostd.None{}, hostd.Reject("too_long", "")
		}
		return hostd.None{}, nil
	})
	return t
}

type (
	draftV1 struct {
		Text string `json:"text"`
	}
	draftV2 struct {
		Count int64  `json:"count"`
		Text  string `json:"text"`
	}
	draft struct {
		Count int64  `json:"count"`
		First string `json:"first"`
	}
)

func drafts() *hostd.Type[draft] {
	t := hostd.Durable[draft]("draft", hostd.JSON)
	hostd.MigrateState(t, 2, func(old draftV2) draft { return draft{10 * old.Count, old.Text + "!"} })
	hostd.MigrateState(t, 1, func(old draftV1) draftV2 { return draftV2{int64(len(old.Text)), old.Text} })
	hostd.Command(t, "write", func(_ *hostd.Context, s *draft, cmd draftV1) (draft, error) {
		s.First = cmd.Text
		if len(cmd.Text) > 10 {
			return *s, hostd.Reject("too_long", "")
		}
		return *s, nil
	})
	return t
}

var _ = hostd.Serve("rest", "1.0.0", rest(), notes(), drafts())

func main() {}
