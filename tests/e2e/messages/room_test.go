package messages

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// entitySends is the maximum number of pending messages of an entity.
const entitySends = 1024

// TestFullOutboxRejectsCommand checks that a command whose messages do not fit
// is rejected and writes nothing. Commands of other entities are executed
// meanwhile, and commands of this entity once there is room again. The count of
// pending messages survives a restart.
func TestFullOutboxRejectsCommand(t *testing.T) {
	testkit.Long(t, "long")
	t.Parallel()
	n := testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--admin", "full"}})
	c := n.Client(client.Options{Timeout: testkit.Patience})
	if _, err := c.Upload(t.Context(), testkit.BuildGuest(t, "tests/e2e/messages/guest"), true); err != nil {
		t.Fatal(err)
	}
	to := func(source, sink, command string) error {
		data := fmt.Appendf(nil, `{"type":"sink","id":%q,"command":%q}`, sink, command)
		_, err := c.Send(t.Context(), client.Command{EntityType: "source", EntityID: source, Name: "to", Data: data})
		return err
	}
	// Messages behind a message that faults wait for that message.
	if err := to("full", "stuck", "trap"); err != nil {
		t.Fatal(err)
	}
	sent, full := 1, error(nil)
	for ; full == nil && sent <= 2*entitySends; sent++ {
		full = to("full", "stuck", "take")
	}
	sent--
	isFull := func(err error) bool {
		var public *client.Error
		return errors.As(err, &public) && public.Code == connect.CodeResourceExhausted && strings.Contains(public.Message, "undelivered messages")
	}
	before, err := c.Entity(t.Context(), "source", "full")
	if err != nil || sent > entitySends || !isFull(full) || int(before.GetSequence()) != sent {
		t.Fatalf("%d sends were taken, the entity is at %d: %v %v", sent, before.GetSequence(), full, err)
	}
	if before.GetPendingMessages() == entitySends { // otherwise the message that faulted is already gone
		if err := to("full", "free", "take"); !isFull(err) {
			t.Errorf("to another one: %v", err)
		}
	}
	if err := to("other", "free", "take"); err != nil {
		t.Errorf("of another one: %v", err)
	}
	n.Await("what the other sent arrives", func() bool { return queryNode[sinkState](t, c, "sink", "free").Heard["other"] == 1 })
	n.Kill()
	n.Start()
	cleared := time.Now()
	n.Await("there is room again", func() bool {
		if time.Since(cleared) > time.Second { // after some faults the entity is quarantined
			n.Run("entity", "clear", "sink", "stuck", "--addr", n.API())
			cleared = time.Now()
		}
		err := to("full", "stuck", "take")
		if err != nil && !isFull(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	n.Await("all arrive", func() bool {
		info, err := c.Entity(t.Context(), "source", "full")
		return err == nil && info.GetPendingMessages() == 0
	})
	// All messages have arrived, except the first, which is a dead letter.
	if s := queryNode[sinkState](t, c, "sink", "stuck"); int(s.Heard["full"]) != sent {
		t.Errorf("%d arrived, %d were sent", s.Heard["full"], sent)
	}
	n.Stop()
	n.MustVerify()
}
