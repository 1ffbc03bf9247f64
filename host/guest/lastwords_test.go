package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
)

// TestFaultContainsGuestOutput checks that a fault contains what the guest
// wrote in the failed call and nothing of previous calls, and that the error
// text includes that output only if TellFaults is set.
func TestFaultContainsGuestOutput(t *testing.T) {
	const message = "panic: \x1b[2Jno\x00 room\n\xff"
	guest := func() *testGuest {
		g := (&testGuest{data: [][]byte{
			cat([]byte{0}, i32c(logTextAt), []byte{opEnd}, text(message)),
			cat([]byte{0}, i32c(logTextAt+512), []byte{opEnd}, text(string(cat(
				binary.LittleEndian.AppendUint32(nil, logTextAt), binary.LittleEndian.AppendUint32(nil, uint32(len(message)))))))}}).
			importing(abi.ImportWASI, "fd_write")
		write := cat(i32c(2), i32c(logTextAt+512), i32c(1), i32c(logTextAt+600), call(0), op(opDrop))
		g.bodies = map[string][]byte{
			abi.ExportQuery:  cat(write, spanc(logTextAt+600, 4)),
			abi.ExportHandle: cat(write, op(opUnreachable)),
		}
		return g
	}
	const want = "panic: ?[2Jno? room\n?"
	for _, tell := range []bool{false, true} {
		g := start(t, Options{TellFaults: tell}, guest())
		if _, err := g.Query(0, nil, Env{}); err != nil {
			t.Fatal(err)
		}
		_, err := g.Handle(0, nil, Env{})
		var fault *Fault
		if !errors.As(err, &fault) || fault.LastWords() != want {
			t.Fatalf("%v: %q", err, fault.LastWords())
		}
		if strings.Contains(err.Error(), want) != tell {
			t.Errorf("TellFaults %v: %v", tell, err)
		}
	}
	silent := start(t, Options{TellFaults: true}, &testGuest{bodies: map[string][]byte{abi.ExportHandle: op(opUnreachable)}})
	if _, err := silent.Handle(0, nil, Env{}); err == nil || strings.Contains(err.Error(), "wrote") {
		t.Errorf("of a guest that wrote nothing: %v", err)
	}
}

// TestFaultContainsLoggedErrors checks that a fault includes the guest's
// error log lines before it failed, and no log lines of other levels.
func TestFaultContainsLoggedErrors(t *testing.T) {
	const message = "apply: no such event"
	for level, want := range map[abi.LogLevel]string{abi.LogDebug: "", abi.LogWarn: "", abi.LogError: message, abi.LogError + 1: message} {
		g := (&testGuest{data: [][]byte{cat([]byte{0}, i32c(logTextAt), []byte{opEnd}, text(message))}}).importing(abi.ImportModule, abi.ImportLog)
		g.bodies = map[string][]byte{abi.ExportHandle: cat(i32c(int32(level)), i32c(logTextAt), i32c(int32(len(message))), call(0), op(opUnreachable))}
		_, err := start(t, Options{}, g).Handle(0, nil, Env{})
		var fault *Fault
		if !errors.As(err, &fault) || fault.LastWords() != want {
			t.Errorf("at level %d the fault has %q: %v", level, fault.LastWords(), err)
		}
	}
}

// TestFaultKeepsEndOfOutput checks that the end of the output is kept, however
// much is written and in whichever pieces.
func TestFaultKeepsEndOfOutput(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789abcdef"), maxWords/4)
	for _, piece := range []int{1, 7, maxWords - 1, maxWords, maxWords + 1, 3 * maxWords, len(all)} {
		var w lastWords
		for at := 0; at < len(all); at += piece {
			w.add(all[at:min(at+piece, len(all))])
			if cap(w.text) > 8*maxWords {
				t.Fatalf("in pieces of %d bytes it holds %d", piece, cap(w.text))
			}
		}
		if got := w.displayText(); got != string(all[len(all)-maxWords:]) {
			t.Errorf("in pieces of %d bytes it keeps %d bytes", piece, len(got))
		}
	}
}
