package hostile

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestGuestTextIsEscapedOnTerminal checks that the control characters in a guest's
// rejection are printed as text, for its caller and in a dead letter.
func TestGuestTextIsEscapedOnTerminal(t *testing.T) {
	t.Parallel()
	const hostile = "\x1b]0;owned\x07\x1b[31m\nhostd: all is well\u009b\u202e\x7f"
	reject := append(binary.LittleEndian.AppendUint16(nil, 4), "code"+hostile...)
	frames := abi.AppendFrame(nil, abi.OutReject, reject)
	send := []byte{}
	for _, s := range []string{"rejecting", "b", "do"} {
		send = append(binary.LittleEndian.AppendUint16(send, uint16(len(s))), s...)
	}
	sends := abi.AppendFrame(nil, abi.OutSend, send)
	node := testkit.StartNode(t, testkit.NodeOptions{})
	for name, module := range map[string]guest.Module{
		"rejecting": {Bad: "rejecting", Handle: guest.Span(guest.FramesAt, uint32(len(frames))), Frames: frames},
		"sending":   {Bad: "sending", Handle: guest.Span(guest.FramesAt, uint32(len(sends))), Frames: sends},
	} {
		file := filepath.Join(t.TempDir(), name+".wasm")
		if err := os.WriteFile(file, module.Build(), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, code := node.Run("module", "push", file, "--addr", node.API()); code != 0 {
			t.Fatalf("push %s: %s", name, out)
		}
	}
	if out, code := node.Run("entity", "send", "sending", "a", "do", "--addr", node.API()); code != 0 {
		t.Fatal(out)
	}
	commands := [][]string{
		{"entity", "send", "rejecting", "a", "do"}, {"entity", "send", "rejecting", "a", "do", "-o", "json"},
		{"entity", "deadletters", "ls"}, {"entity", "deadletters", "ls", "-o", "json"},
	}
	for _, args := range commands {
		var out string
		node.Await("its text is shown", func() bool {
			out, _ = node.Run(append(args, "--addr", node.API())...)
			return strings.Contains(out, "owned")
		})
		if i := strings.IndexFunc(out, func(r rune) bool { return slices.Contains([]rune{0x1b, 7, 0x9b, 0x202e, 0x7f}, r) }); i >= 0 {
			t.Errorf("%q: control characters in %q", args, out)
		}
		if strings.Contains(out, "\nhostd: all is well") {
			t.Errorf("%q: a line of the guest's own in %q", args, out)
		}
	}
}
