package host_test

import (
	"context"
	"encoding/binary"
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
	"github.com/hostd/hostd/host/moduleapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// backed is a type of notes that is rolled back to its first module, which
// accepts only events of the type "happened".
type backed struct {
	t     *testing.T
	n     *host.Node
	c     *client.Client
	fits  modulev1connect.ModuleServiceClient
	one   journal.Digest
	looks int
	// during is called after each check of the entities, before the check's
	// result is used.
	during func(fence uint64)
}

func newBacked(t *testing.T) *backed {
	b := &backed{t: t}
	b.n, b.c = start(t, t.TempDir())
	t.Cleanup(func() { stop(t, b.n) })
	b.fits = modulev1connect.NewModuleServiceClient(http.DefaultClient, "http://"+b.n.Addr())
	b.one = b.activated("1", "happened")
	return b
}

// activated activates a module whose commands emit an event of the given type.
func (b *backed) activated(version, event string) journal.Digest {
	b.t.Helper()
	text := append(binary.LittleEndian.AppendUint16(nil, uint16(len(event))), event...)
	frames := abi.AppendFrame(abi.AppendFrame(nil, abi.OutEvent, append(text, "it"...)), abi.OutReply, []byte("done"))
	m := guest.Module{
		Bad: "note", Frames: frames, Handle: guest.Span(guest.FramesAt, uint32(len(frames))),
		Manifest: fmt.Sprintf(`{"abi":1,"name":"note","version":%q,"entityTypes":[{"name":"note","kind":"event-sourced","encoding":"bytes","events":[{"type":%q}]}]}`, version, event),
	}
	res, err := client.UploadModule(b.t.Context(), b.c, &modulev1.UploadModuleRequest{Wasm: m.Build(), Activate: true, Force: true})
	if err != nil {
		b.t.Fatal(err)
	}
	digest, err := hex.DecodeString(res.GetDigest())
	if err != nil {
		b.t.Fatal(err)
	}
	return journal.Digest(digest)
}

func (b *backed) send(id string) error {
	_, err := b.c.Send(b.t.Context(), client.Command{EntityType: "note", EntityID: id, Name: "go"})
	return err
}

func (b *backed) sends(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		if err := b.send(id); err != nil {
			b.t.Fatal(err)
		}
	}
}

// touched checks with the first module the entities that other modules have
// written.
func (b *backed) touched(ctx context.Context, fence uint64) (*modulev1.CheckCompatibilityResponse, error) {
	res, err := b.fits.CheckCompatibility(ctx, connect.NewRequest(&modulev1.CheckCompatibilityRequest{
		EntityType: "note", Digest: b.one.String(), ExcludeWrittenBy: []string{b.one.String()}, MinActivationRevision: fence,
	}))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// rollback rolls back as the product does.
func (b *backed) rollback() error {
	looks := moduleapi.RollbackCheck{Touched: func(ctx context.Context, t modules.RollbackType) (*modulev1.CheckCompatibilityResponse, error) {
		found, err := b.touched(ctx, t.Fence)
		b.looks++
		b.during(t.Fence)
		return found, err
	}}
	_, err := b.n.Modules().Service.Rollback(b.t.Context(), modules.TakeBack{EntityType: "note", Check: looks.Check})
	return err
}

// revision returns the revision under which the type is served, and its module.
func (b *backed) revision() (journal.Digest, uint64) {
	b.t.Helper()
	s, err := b.n.Modules().Service.Lookup(b.t.Context(), "note")
	if err != nil {
		b.t.Fatal(err)
	}
	return s.Module, s.Revision
}

// TestRollbackChecksConcurrentWrites: events that the module writes after the
// first check, and that the previous module cannot read, are found. The
// rollback fails and the type is still served.
func TestRollbackChecksConcurrentWrites(t *testing.T) {
	b := newBacked(t)
	two := b.activated("2", "new")
	b.during = func(fence uint64) {
		if fence == 0 {
			b.sends("a")
		}
	}
	var refused *status.RefusedError
	if err := b.rollback(); !errors.As(err, &refused) || refused.Name != status.RefusedFault {
		t.Errorf("a module goes back that cannot read what is stored: %v", err)
	}
	if by, _ := b.revision(); by != two || b.looks != 2 {
		t.Errorf("after %d looks the type is served by %s", b.looks, by)
	}
	b.sends("a", "b") // the type is no longer write-paused
}

// TestRollbackWritePausesTypeDuringLastCheck: nothing is written during the
// last check. A command that arrives then waits, and the previous module
// handles it.
func TestRollbackWritePausesTypeDuringLastCheck(t *testing.T) {
	b := newBacked(t)
	b.activated("2", "new")
	answered, early := make(chan error, 1), false
	b.during = func(fence uint64) {
		if fence == 0 {
			return
		}
		go func() { answered <- b.send("a") }()
		select {
		case err := <-answered:
			early = true
			answered <- err
		case <-time.After(stayed):
		}
	}
	if err := b.rollback(); err != nil || b.looks != 2 {
		t.Fatalf("after %d looks: %v", b.looks, err)
	}
	select {
	case err := <-answered:
		if err != nil || early {
			t.Errorf("a command during the last look: early %v, %v", early, err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the command is not answered")
	}
	if by, _ := b.revision(); by != b.one {
		t.Errorf("the type is served by %s", by)
	}
	for e, err := range b.c.ReadEvents(t.Context(), client.EventRange{EntityType: "note", EntityID: "a"}) {
		if err != nil || e.Type != "happened" {
			t.Errorf("%v of the module that was taken back, %v", e, err)
		}
	}
}

// TestLastCheckSkipsCheckedEntities: entities that passed the check are not
// replayed again, unless they have been written since then or the module
// failed on one of them.
func TestLastCheckSkipsCheckedEntities(t *testing.T) {
	b := newBacked(t)
	b.sends("a", "b")
	b.activated("2", "happened")
	_, revision := b.revision()
	look := func(fence, entities, failing uint64) {
		t.Helper()
		found, err := b.touched(t.Context(), fence)
		if err != nil || found.GetUncheckedShards() > 0 || found.GetEntities() != entities || found.GetFaultyEntities() != failing {
			t.Errorf("want %d entities, %d failing: %v, %v", entities, failing, found, err)
		}
	}
	look(revision, 0, 0) // there was no earlier check
	b.sends("a", "b", "c")
	look(0, 3, 0)
	look(0, 3, 0)
	look(revision, 0, 0)
	b.sends("a", "d", "a")
	look(revision, 2, 0)
	b.activated("3", "new")
	b.sends("e")
	_, revision = b.revision()
	for range 2 {
		look(revision, 1, 1)
		look(0, 5, 1)
	}
}
