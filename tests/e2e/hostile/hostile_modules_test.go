package hostile

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// harmful is a guest with a harmful command.
type harmful struct {
	name string
	guest.Module
	ends string // expected in the error of its command; "" if the command succeeds
}

// answering returns a guest whose commands answer with an event and these
// frames.
func answering(name string, frames []byte, ends string) harmful {
	all := slices.Concat(abi.AppendEvent(nil, "happened", nil), frames)
	return harmful{name, guest.Module{Frames: all, MemoryPages: 16, Handle: guest.Span(guest.FramesAt, uint32(len(all)))}, ends}
}

// hostileGuests returns guests that are accepted but do harm when they are
// called.
func hostileGuests() []harmful {
	code := func(name, ends string, parts ...[]byte) harmful {
		return harmful{name, guest.Module{Handle: slices.Concat(parts...)}, ends}
	}
	const end = guest.MemoryBytes
	nothing := []byte{0x42, 0x00}                               // i64.const 0
	both := []byte{0x20, 0x00, 0x20, 0x01}                      // push the two parameters
	grown := []byte{0x41, 0xde, 0x07, 0x40, 0x00, 0x1a}         // i32.const 990, memory.grow, drop
	forever := []byte{0x03, 0x40, 0x0c, 0x00, 0x0b, 0x42, 0x00} // loop br 0 end, i64.const 0
	// The code loops forever if there are events (loop br 0 end end), and
	// otherwise returns i32.const 0.
	applying := guest.Module{Apply: []byte{0x20, 0x01, 0x04, 0x40, 0x03, 0x40, 0x0c, 0x00, 0x0b, 0x0b, 0x41, 0x00}}
	deciding := []byte{0x10, 0x05}             // call hostd_handle
	dropping := []byte{0x20, 0x00, 0x10, 0x08} // drops its entity's state
	schedule := func(expression, zone string) []byte {
		return abi.AppendSetSchedule(nil, abi.Timer{Name: []byte("t"), Expression: []byte(expression), Zone: []byte(zone), Command: []byte("c")})
	}
	timer := func(due int64) []byte {
		return abi.AppendSetTimer(nil, abi.Timer{Name: []byte("t"), Due: due, Command: []byte("c")})
	}
	events := []byte{}
	for range 127 {
		events = abi.AppendEvent(events, "happened", make([]byte, 2000))
	}
	return []harmful{
		code("a command without end", "fuel spent", forever),
		{"events without end", applying, ""},
		code("a trap", "trap", guest.Unreachable),
		code("a command that calls itself", "stack spent", both, deciding),
		code("a command that drops its own state", "", dropping, nothing),
		code("memory that grows to 62 MB", "", grown, nothing),
		code("memory that grows to 62 MB, and a trap", "trap", grown, guest.Unreachable),
		code("a span that wraps", "span outside memory", guest.Span(math.MaxUint32, 64)),
		code("a span of 2^32-1", "span outside memory", guest.Span(0, math.MaxUint32)),
		code("a span across the end", "span outside memory", guest.Span(end-8, 16)),
		answering("a reply of 256 KiB", abi.AppendReply(nil, make([]byte, 256<<10)), ""),
		answering("a reply of 256 KiB and a byte", abi.AppendReply(nil, make([]byte, 256<<10+1)), "reply bytes: 262145, limit 262144"),
		answering("128 events of 2 KB", events, ""),
		answering("a tag with control characters", abi.AppendTag(nil, "a\x1b[31m\n"), "tag: contains a control character"),
		answering("an event's name with control characters", abi.AppendEvent(nil, "a\nb", nil), "event type: contains a control character"),
		answering("a zone that is a path", schedule("@daily", "../../etc/passwd"), "unknown time zone"),
		answering("the 31st of February", schedule("0 0 31 2 *", ""), "never fires"),
		answering("a frame of an unknown kind", abi.AppendFrame(nil, 77, "x"), "unknown output kind"),
		answering("a timer at the beginning of time", timer(math.MinInt64), "timer is due before 1970"),
		answering("a timer at the end of time", timer(math.MaxInt64), ""),
	}
}

// TestHostileGuests checks that the command of a harmful guest is answered or
// fails with its cause, and that a neighbour's commands succeed meanwhile and
// afterwards.
func TestHostileGuests(t *testing.T) {
	node := testkit.StartNode(t, testkit.NodeOptions{})
	beside := newNeighbour(t, node)
	c := node.Client(client.Options{Timeout: testkit.Patience})
	for i, h := range hostileGuests() {
		h.Bad = fmt.Sprintf("hostile-%d", i)
		if _, err := c.Upload(t.Context(), h.Build(), true); err != nil {
			t.Fatalf("%s: %v", h.name, err)
		}
		const callers = 4
		ended := make(chan error, callers)
		for caller := range callers {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
				defer cancel()
				_, err := c.Send(ctx, client.Command{EntityType: h.Bad, EntityID: fmt.Sprint(caller), Name: "do"})
				ended <- err
			}()
		}
		for left := callers; left > 0; {
			beside.adds()
			select {
			case err := <-ended:
				if left--; h.ends == "" && err != nil || h.ends != "" && (err == nil || !strings.Contains(err.Error(), h.ends)) {
					t.Errorf("%s: got %v, want %q", h.name, err, h.ends)
				}
			default:
			}
		}
	}
	if beside.adds(); !node.Running() {
		t.Error("the node has ended")
	}
}
