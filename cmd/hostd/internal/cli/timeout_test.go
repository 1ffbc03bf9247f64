package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

// TestTimeoutBoundsTheWholeCommand checks that --timeout bounds the whole
// command, and not only each of its calls. The client gives some calls three
// times as long.
func TestTimeoutBoundsTheWholeCommand(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const timeout = time.Hour
	var left time.Duration
	see := func(ctx context.Context) {
		if until, ok := ctx.Deadline(); ok {
			left = time.Until(until)
		}
	}
	for name, make := range map[string]func(std Stdio) *cobra.Command{
		"order": func(std Stdio) *cobra.Command {
			return Order(std, "do", "Do it", 0, 0, func(ctx context.Context, _ *Session, _ []string) (string, error) {
				see(ctx)
				return "", nil
			})
		},
		"ask": func(std Stdio) *cobra.Command {
			return Ask(std, "do", "Do it", 0, 0, func(ctx context.Context, _ *Session, _ []string) (string, error) {
				see(ctx)
				return "", nil
			}, func(io.Writer, string) {})
		},
	} {
		left = 0
		var failed bytes.Buffer
		std := Stdio{Out: io.Discard, Err: &failed}
		root := &cobra.Command{Use: "hostd"}
		root.AddCommand(make(std))
		if code := Run(t.Context(), root, []string{"do", "--addr", l.Addr().String(), "--timeout", timeout.String()}, std); code != ExitDone {
			t.Fatalf("%s: exit code %d: %s", name, code, &failed)
		}
		if left <= 0 || left > timeout {
			t.Errorf("%s: there are %v left of %v", name, left, timeout)
		}
	}
}

// TestHintOfADeadlineFitsTheCommand checks that only commands with the flag
// --command-id get a hint that names it.
func TestHintOfADeadlineFitsTheCommand(t *testing.T) {
	over := &client.Error{Code: connect.CodeDeadlineExceeded, Message: "over"}
	order, send := &cobra.Command{}, &cobra.Command{}
	AddNamed(send, &Named{}, "command")
	if next := nextStep(order, over); next == "" || strings.Contains(next, "--command-id") {
		t.Errorf("a command without the flag: %q", next)
	}
	if next := nextStep(send, over); !strings.Contains(next, "--command-id") {
		t.Errorf("a command with the flag: %q", next)
	}
}
