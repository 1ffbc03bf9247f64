package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestTypeLimitsChangeAtRunTime checks that a type has limits of its own that can change
// while it is in use, persist over a restart, and no longer apply after they
// are removed. A command that exceeds a limit writes nothing.
func TestTypeLimitsChangeAtRunTime(t *testing.T) {
	node := testkit.StartNode(t, testkit.NodeOptions{})
	c := node.Client(client.Options{Timeout: testkit.Patience})
	frames := guest.Happened() // an event of 2 bytes and a reply of 4 bytes
	up, err := c.Upload(t.Context(), guest.Module{
		Bad: "calm", Frames: frames,
		Handle: slices.Concat(guest.Count(1000), []byte{0x1a}, guest.Span(guest.FramesAt, uint32(len(frames)))),
	}.Build(), true)
	if err != nil {
		t.Fatal(err)
	}
	activate := func(limit string) uint64 {
		t.Helper()
		before := binding(t, c)
		if out, code := node.Run("module", "activate", "calm", up.Digest, "--limit", limit, "--addr", node.API()); code != 0 {
			t.Fatalf("module activate --limit %s: %d\n%s", limit, code, out)
		}
		return binding(t, c).GetRevision() - before.GetRevision()
	}
	sends := 0
	send := func() error {
		sends++
		_, err := c.Send(t.Context(), client.Command{EntityType: "calm", EntityID: fmt.Sprint(sends), Name: "x"})
		return err
	}
	for _, step := range []struct {
		limit  string
		passed string // expected error; empty if the command succeeds
		code   connect.Code
	}{
		{"reply-bytes=4,event-bytes=2,max-events=1", "", 0},
		{"reply-bytes=3", "repl", connect.CodeOutOfRange},
		{"event-bytes=1", "event", connect.CodeOutOfRange},
		{"command-fuel=1000", "fuel", connect.CodeInternal},
		{"command-fuel=1000000", "", 0},
		{"query-fuel=1", "", 0},
	} {
		if n := activate(step.limit); n != 1 {
			t.Errorf("limits %s are %d revisions", step.limit, n)
		}
		if n := activate(step.limit); n != 0 {
			t.Errorf("limits %s again are %d revisions", step.limit, n)
		}
		err := send()
		if step.passed == "" && err != nil {
			t.Errorf("with %s: %v", step.limit, err)
		}
		if step.passed != "" && (client.CodeOf(err) != step.code || !strings.Contains(err.Error(), step.passed)) {
			t.Errorf("with %s the command ended with %v", step.limit, err)
		}
		if e, err := c.Entity(t.Context(), "calm", fmt.Sprint(sends)); err != nil || (e.GetSequence() == 1) != (step.passed == "") {
			t.Errorf("with %s the entity is %v, %v", step.limit, e, err)
		}
	}
	activate("memory-bytes=1048576,type-memory-bytes=4194304,rate-per-second=1")
	var exhausted error
	accepted := 0
	for range 50 {
		if err := send(); err == nil {
			accepted++
		} else if exhausted = err; client.CodeOf(err) != connect.CodeResourceExhausted {
			t.Fatalf("beyond the rate a command ended with %v", err)
		} else {
			break
		}
	}
	if exhausted == nil || accepted < 1 {
		t.Errorf("with 1 command a second %d were carried out, then %v", accepted, exhausted)
	}
	var refused *client.Error
	if !errors.As(exhausted, &refused) || refused.RetryAfter <= 0 || refused.RetryAfter > time.Second {
		t.Errorf("the refusal is %#v, which does not say how long to wait", exhausted)
	}
	if e, err := c.Entity(t.Context(), "calm", fmt.Sprint(sends)); err != nil || e.GetSequence() != 0 {
		t.Errorf("what the rate refused left %v, %v", e, err)
	}
	for _, limit := range []string{"fuel-per-second", "bytes-per-second"} {
		activate(limit + "=1")
		if err := send(); err != nil {
			t.Errorf("the first command under %s=1: %v", limit, err)
		}
		err := send()
		if client.CodeOf(err) != connect.CodeResourceExhausted || !errors.As(err, &refused) || !strings.Contains(err.Error(), limit) || refused.RetryAfter <= 0 || refused.RetryAfter > time.Minute {
			t.Errorf("the second command under %s=1: %v", limit, err)
		}
		if e, err := c.Entity(t.Context(), "calm", fmt.Sprint(sends)); err != nil || e.GetSequence() != 0 {
			t.Errorf("what %s refused left %v, %v", limit, e, err)
		}
	}
	activate("memory-bytes=1048576,type-memory-bytes=4194304,rate-per-second=1")
	if out, code := node.Run("module", "activate", "calm", up.Digest, "--limit", "memory-bytes=65536", "--addr", node.API()); code != 1 || !strings.Contains(out, "memory") {
		t.Errorf("a limit that the module cannot start under: %d\n%s", code, out)
	}
	if out, code := node.Run("module", "describe", "calm", "--addr", node.API()); code != 0 || !strings.Contains(out, "memory-bytes=1048576,type-memory-bytes=4194304,rate-per-second=1") {
		t.Errorf("module describe: %d\n%s", code, out)
	}
	if out, code := node.Run("module", "ls", "-o", "json", "--addr", node.API()); code != 0 || !strings.Contains(out, `"rate-per-second": 1`) {
		t.Errorf("module ls -o json: %d\n%s", code, out)
	}
	activate("query-fuel=1")
	node.Kill()
	node.Start()
	if l := binding(t, c).GetLimits(); l.GetQueryFuel() != 1 || l.GetCommandFuel() != 0 {
		t.Errorf("after a restart the limits are %v", l)
	}
	if out, code := node.Run("module", "describe", "calm", "--addr", node.API()); code != 0 || !strings.Contains(out, "query-fuel=1") {
		t.Errorf("module describe: %d\n%s", code, out)
	}
	if n := activate("none="); n != 1 || binding(t, c).GetLimits() != nil {
		t.Errorf("lifted limits are %d revisions, %v", n, binding(t, c).GetLimits())
	}
	if err := send(); err != nil {
		t.Error(err)
	}
	if out, code := node.Run("module", "activate", "calm", up.Digest, "--limit", "speed=9", "--addr", node.API()); code != 2 || !strings.Contains(out, "reply-bytes") {
		t.Errorf("an unknown limit: %d\n%s", code, out)
	}
	node.Stop()
	node.MustVerify()
}

// binding returns the activation of the module that serves the type calm.
func binding(t *testing.T, c *client.Client) *modulev1.Activation {
	t.Helper()
	res, err := c.ActiveModule(t.Context(), "calm")
	if err != nil {
		t.Fatal(err)
	}
	if b := res.GetModule().GetActivations(); len(b) == 1 {
		return b[0]
	}
	t.Fatalf("the module is %v", res)
	return nil
}
