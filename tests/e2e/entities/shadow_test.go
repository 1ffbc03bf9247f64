package entities

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// shadowKey is the setting that makes a shadow module run the commands of
// notes.
const shadowKey = "entity.note.shadow"

// beside makes a module the shadow for all commands of the notes.
func (n *node) beside(m guest.Module) (digest string) {
	n.t.Helper()
	up, err := n.c.Upload(n.t.Context(), m.Build(), false)
	if err == nil {
		_, err = n.c.PutSetting(n.t.Context(), shadowKey, up.Digest+" 100%")
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return up.Digest
}

// compared returns the result of the shadow's comparison.
func (n *node) compared() *modulev1.Shadow {
	n.t.Helper()
	res, err := client.RolloutState(n.t.Context(), n.c, "note")
	if err != nil || res.GetRollout() != nil {
		n.t.Fatal(res, err)
	}
	return res.GetShadow()
}

// untilCompared sends commands to the entity until at least one of them is
// compared. It returns the number of commands and the result.
func (n *node) untilCompared(id string) (sent int, s *modulev1.Shadow) {
	n.t.Helper()
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(5 * time.Millisecond) {
		n.notes(id)
		sent++
		switch s = n.compared(); {
		case s.GetCompared() > 0:
			return sent, s
		case time.Now().After(deadline):
			n.t.Fatalf("nothing is compared: %v", s)
		}
	}
}

// sendsTo makes the module's commands also send a message to a note.
func sendsTo(m guest.Module, id string) guest.Module {
	m.Frames = abi.AppendSend(m.Frames, abi.Send{EntityType: []byte("note"), EntityID: []byte(id), Command: []byte("go")})
	m.Handle = guest.Span(guest.FramesAt, uint32(len(m.Frames)))
	return m
}

// TestShadowReportsDifferences checks that if a shadow module decides
// differently, the differing parts are reported, and that none of its decisions
// takes effect: no event, reply, rejection or message.
func TestShadowReportsDifferences(t *testing.T) {
	n := newNode(t)
	n.pushed(noter("1", bothEvents))
	replies := noter("3", bothEvents)
	replies.Frames = abi.AppendReply(abi.AppendEvent(nil, "happened", []byte("it")), []byte("gone"))
	replies.Handle = guest.Span(guest.FramesAt, uint32(len(replies.Frames)))
	slower := noter("6", bothEvents)
	slower.Handle = slices.Concat(guest.Count(1000), []byte{0x1a}, slower.Handle) // the handler counts first and drops the result
	sent := map[string]int{}
	for _, c := range []struct {
		name  string
		m     guest.Module
		want  string
		fault string
	}{
		{"as-before", noter("2", bothEvents), "", ""},
		{"events", emits(noter("2", bothEvents), "new"), "events", ""},
		{"reply", replies, "reply", ""},
		{"rejection", rejecting(noter("4", bothEvents)), "rejection", ""},
		{"messages", sendsTo(noter("5", bothEvents), "victim"), "messages", ""},
		{"slower", slower, "", ""},
		{"fault", trapping(noter("7", bothEvents)), "fault", "unreachable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.t = t
			digest := n.beside(c.m)
			before, s := n.untilCompared(c.name)
			sent[c.name] = before
			if s.GetDigest() != digest || s.GetShare() != 10_000 || s.GetNote() != "" || s.GetMissingNodeCount() != 0 {
				t.Errorf("what compares is %v", s)
			}
			if c.want == "" {
				if s.GetDiffering() != 0 || len(s.GetExamples()) != 0 {
					t.Fatalf("something differs: %v", s)
				}
				if more := s.GetShadowFuel() > s.GetFuel(); more != (c.name == "slower") {
					t.Errorf("fuel: %d, and of the other module %d", s.GetFuel(), s.GetShadowFuel())
				}
				return
			}
			if s.GetDiffering() != s.GetCompared() || len(s.GetDifferences()) != 1 || s.GetDifferences()[0].GetKind() != c.want || s.GetDifferences()[0].GetCommands() != s.GetDiffering() {
				t.Errorf("what differs is %v", s)
			}
			e := s.GetExamples()[0]
			if e.GetEntityId() != c.name || e.GetCommand() != "go" || e.GetSequence() >= uint64(before) || !slices.Equal(e.GetKinds(), []string{c.want}) || !strings.Contains(e.GetFault(), c.fault) {
				t.Errorf("the example is %v", e)
			}
		})
	}
	n.t = t
	var written []string
	for e, err := range n.c.Subscribe(t.Context(), client.Subscription{EntityType: "note"}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != "happened" {
			t.Errorf("%s has an event %s", e.EntityID, e.Type)
		}
		if e.EntityID == "victim" {
			t.Error("a send has arrived")
		}
		written = append(written, e.EntityID)
	}
	for id, want := range sent {
		got := 0
		for _, one := range written {
			if one == id {
				got++
			}
		}
		if got != want {
			t.Errorf("%s has %d events, want %d", id, got, want)
		}
	}
	if res, err := n.api().ListMessages(t.Context(), connect.NewRequest(&entityv1.ListMessagesRequest{EntityType: "note"})); err != nil || len(res.Msg.GetMessages()) != 0 {
		t.Errorf("sends are on their way: %v, %v", res, err)
	}
}

// TestSlowShadowDropsCommands checks that commands that a shadow
// cannot keep up with are dropped and counted, because callers do not wait for
// a shadow. A shadow whose setting is removed ends, and a node with a busy
// shadow can stop.
func TestSlowShadowDropsCommands(t *testing.T) {
	n := newNode(t)
	n.pushed(noter("1", bothEvents))
	endless := noter("2", bothEvents)
	endless.Handle = guest.Count(1 << 30) // the loop needs more fuel than a command has
	n.beside(endless)
	var mu sync.Mutex
	sent := map[string]int{}
	for deadline := time.Now().Add(testkit.Patience); n.compared().GetDropped() == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("nothing is dropped: %v", n.compared())
		}
		var senders sync.WaitGroup
		for i := range 8 {
			senders.Go(func() {
				id := fmt.Sprint("e", i)
				for range 50 {
					if err := n.note(id); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					sent[id]++
					mu.Unlock()
				}
			})
		}
		senders.Wait()
	}
	all := 0
	for id, want := range sent {
		if e, err := n.c.Entity(t.Context(), "note", id); err != nil || e.GetSequence() != uint64(want) {
			t.Errorf("%s: %v, want %d events: %v", id, e, want, err)
		}
		all += want
	}
	if s := n.compared(); s.GetCompared()+s.GetSkipped()+s.GetDropped() > uint64(all) {
		t.Errorf("of %d: %v", all, s)
	}
	if _, err := n.c.PutSetting(t.Context(), shadowKey, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RolloutState(t.Context(), n.c, "note"); client.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("after its end: %v", err)
	}
	n.stop() // the node stops although commands wait for the shadow
	n.start()
	n.notes("e0")
}

// TestInvalidShadowIsRejected checks that a shadow is rejected if its module
// does not exist or does not serve the type, and that the error states the
// reason if the type has a different kind in the module.
func TestInvalidShadowIsRejected(t *testing.T) {
	n := newNode(t)
	one := n.pushed(noter("1", bothEvents))
	other, err := n.c.Upload(t.Context(), kept("other", "event-sourced", "bytes", "1").Build(), true)
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		strings.Repeat("0", 64) + " 10%": "no module", other.Digest + " 10%": "does not serve", one + " 0%": "percentage", one: "DIGEST PERCENT", one + " 10%": "already serves note",
	} {
		if _, err := n.c.PutSetting(t.Context(), shadowKey, value); client.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", value, err)
		}
	}
	if _, err := client.RolloutState(t.Context(), n.c, "note"); client.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("what was refused: %v", err)
	}
	n.beside(kept("note", "durable-state", "bytes", "2"))
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(5 * time.Millisecond) {
		n.notes("a")
		s := n.compared()
		if strings.Contains(s.GetNote(), "kind") && s.GetCompared() == 0 && s.GetSkipped() > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(s)
		}
	}
}
