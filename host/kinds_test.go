package host_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// stayed is how long the test waits for a command that must not be answered.
const stayed = 300 * time.Millisecond

// otherKind is a type of notes. One of its modules is state-stored and the
// other, which the test activates, is event-sourced.
type otherKind struct {
	t          *testing.T
	n          *host.Node
	c          *client.Client
	one, two   journal.Digest
	fits       modulev1connect.ModuleServiceClient
	first      chan error // result of the first command
	looks      int
	inLook     int // number of the check for entities during which the first command is sent
	answeredIn bool
}

func newOtherKind(t *testing.T, inLook int) *otherKind {
	k := &otherKind{t: t, first: make(chan error, 1), inLook: inLook}
	k.n, k.c = start(t, t.TempDir())
	t.Cleanup(func() { stop(t, k.n) })
	k.fits = modulev1connect.NewModuleServiceClient(http.DefaultClient, "http://"+k.n.Addr())
	state := abi.AppendFrame(abi.AppendFrame(nil, abi.OutState, []byte("state")), abi.OutReply, []byte("done"))
	k.one = k.uploaded("durable-state", state, true)
	k.two = k.uploaded("event-sourced", guest.Happened(), false)
	return k
}

func (k *otherKind) uploaded(kind string, frames []byte, activate bool) journal.Digest {
	k.t.Helper()
	m := guest.Module{
		Bad: "note", Frames: frames, Handle: guest.Span(guest.FramesAt, uint32(len(frames))),
		Manifest: fmt.Sprintf(`{"abi":1,"name":"kept","version":"1","entityTypes":[{"name":"note","kind":%q,"encoding":"bytes"}]}`, kind),
	}
	res, err := k.c.Upload(k.t.Context(), m.Build(), activate)
	if err != nil {
		k.t.Fatal(err)
	}
	digest, err := hex.DecodeString(res.Digest)
	if err != nil {
		k.t.Fatal(err)
	}
	return journal.Digest(digest)
}

func (k *otherKind) send() error {
	_, err := k.c.Send(k.t.Context(), client.Command{EntityType: "note", EntityID: "a", Name: "go"})
	return err
}

// HasEntities looks for stored entities as the product does, and sends the first
// command before it returns the result.
func (k *otherKind) HasEntities(ctx context.Context, _ string, fence uint64) (bool, error) {
	present := false
	for shard := range uint32(8) {
		res, err := k.fits.CheckCompatibility(ctx, connect.NewRequest(&modulev1.CheckCompatibilityRequest{EntityType: "note", Digest: k.one.String(), ShardId: shard + 1, PresenceOnly: true, MinActivationRevision: fence}))
		if err != nil {
			return true, err
		}
		present = present || res.Msg.GetPresent()
	}
	if k.looks++; k.looks != k.inLook {
		return present, nil
	}
	go func() { k.first <- k.send() }()
	wait := time.After(time.Minute)
	if fence > 0 {
		wait = time.After(stayed)
	}
	select {
	case err := <-k.first:
		k.answeredIn = true
		k.first <- err
	case <-wait:
	}
	return present, nil
}

// activate activates the second module and waits for the first command.
func (k *otherKind) activate() error {
	k.t.Helper()
	_, err := k.n.Modules().Service.Activate(k.t.Context(), modules.Activation{EntityType: "note", Digest: k.two, Entities: k})
	if k.looks < k.inLook {
		k.t.Fatalf("the type was looked at %d times: %v", k.looks, err)
	}
	select {
	case err := <-k.first:
		if err != nil {
			k.t.Fatalf("the first command: %v", err)
		}
	case <-time.After(time.Minute):
		k.t.Fatal("the first command is not answered")
	}
	return err
}

// events returns the number of the entity's events that the second module
// wrote.
func (k *otherKind) events() (n int) {
	k.t.Helper()
	for e, err := range k.c.ReadEvents(k.t.Context(), client.EventRange{EntityType: "note", EntityID: "a"}) {
		if err != nil {
			k.t.Fatal(err)
		}
		if e.Type == "happened" {
			n++
		}
	}
	return n
}

// TestKindChangeFailsIfEntityIsCreated: an entity that is created after the
// first check for stored entities is found by the second check. The module that
// created it continues to serve the type.
func TestKindChangeFailsIfEntityIsCreated(t *testing.T) {
	k := newOtherKind(t, 1)
	var refused *status.RefusedError
	if err := k.activate(); !errors.As(err, &refused) || refused.Name != status.RefusedKind {
		t.Errorf("a module that cannot read what is stored serves: %v", err)
	}
	if !k.answeredIn || k.looks != 2 {
		t.Fatalf("the command was not answered between the looks, of which there were %d", k.looks)
	}
	if err := k.send(); err != nil { // the type is still served
		t.Error(err)
	}
	if n := k.events(); n != 0 {
		t.Errorf("the entity has %d events of the module that was refused", n)
	}
}

// TestKindChangeWritePausesType: no entity can be created during the last check
// for stored entities. The command waits, and the newly activated module
// handles it.
func TestKindChangeWritePausesType(t *testing.T) {
	k := newOtherKind(t, 2)
	if err := k.activate(); err != nil {
		t.Fatal(err)
	}
	if k.answeredIn {
		t.Error("an entity was made while the type was looked at")
	}
	if err := k.send(); err != nil {
		t.Error(err)
	}
	if n := k.events(); n != 2 {
		t.Errorf("%d of 2 events are of the module that serves", n)
	}
}
