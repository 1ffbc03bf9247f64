package entities

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestVerifyFindsMapOrderDependence checks a module whose state depends on the
// iteration order of a map. The module fails a verification, whether it is
// compared with another module or with itself. It is not activated unless
// forced, and cannot be the reference of a comparison.
func TestVerifyFindsMapOrderDependence(t *testing.T) {
	const entities = 4
	n := newNode(t)
	before, walked := n.orders("before", true), n.orders("walked", false)
	for i := range entities {
		for at := range 6 {
			n.place(fmt.Sprint("o", i), fmt.Sprintf(`{"sku":"sku%d","count":1,"cents":7}`, at))
		}
	}
	fails := func() {
		t.Helper()
		m := n.verify(walked)
		if m.GetFaultyEntities() != entities || m.GetDifferingEntities() != 0 || len(m.GetDifferences()) != entities {
			t.Fatalf("a module that walks a map: %v", m)
		}
		for _, d := range m.GetDifferences() {
			if !d.GetFault() || !strings.Contains(d.GetDescription(), "gives two states") {
				t.Errorf("a fault is %v", d)
			}
		}
	}
	fails()
	if err := n.activate(walked); reason(err) != "VERIFY_FAILED" {
		t.Fatalf("it is activated: %v", err)
	}
	n.force(walked)
	fails()
	if m := n.verify(before); m.GetUncomparedEntities() != entities || len(m.GetDifferences()) != 0 {
		t.Errorf("compared with a module that walks a map: %v", m)
	}
	n.force(before)
	if m := n.verify(before); m.GetEntities() != entities || m.GetUncomparedEntities() != 0 || len(m.GetDifferences()) != 0 {
		t.Errorf("a module that walks none: %v", m)
	}
}

// TestVerifyFindsBatchDependence checks that a module whose state depends on how its
// events are batched fails.
func TestVerifyFindsBatchDependence(t *testing.T) {
	const countAt = 100
	n := newNode(t)
	frames := guest.Happened()
	counts := guest.Module{
		Bad: "order", Frames: frames, Handle: guest.Span(guest.FramesAt, uint32(len(frames))), State: guest.Span(countAt, 1),
		// store8(countAt, load8_u(countAt) + 1)
		Apply: []byte{0x41, 0, 0x41, 0, 0x2d, 0, countAt, 0x41, 1, 0x6a, 0x3a, 0, countAt, 0x41, 0},
	}
	up, err := n.c.Upload(t.Context(), counts.Build(), true)
	if err != nil {
		t.Fatal(err)
	}
	n.command("order", "o1", "go", "")
	if m := n.verify(up.Digest); m.GetEntities() != 1 || len(m.GetDifferences()) != 0 {
		t.Errorf("one event is one batch: %v", m)
	}
	for range 5 {
		n.command("order", "o1", "go", "")
	}
	m := n.verify(up.Digest)
	if m.GetFaultyEntities() != 1 || len(m.GetDifferences()) != 1 || !strings.Contains(m.GetDifferences()[0].GetDescription(), "in different batches") {
		t.Errorf("six events: %v", m)
	}
}

// force activates a module even if a check has failed.
func (n *node) force(digest string) {
	n.t.Helper()
	if _, err := n.modules().ActivateModule(n.t.Context(), connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: "order", Digest: digest, Force: true})); err != nil {
		n.t.Fatal(err)
	}
}
