package api

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestActivationChecksCompatibilityOnAllNodes checks that an activation compares the module
// with stored entities on all nodes that lead their shards, whichever node
// receives the request.
func TestActivationChecksCompatibilityOnAllNodes(t *testing.T) {
	const entities = 24
	v := verifying{Cluster: testkit.StartCluster(t, 3, testkit.ClusterOptions{}), t: t}
	v.c = v.Client(client.Options{Timeout: testkit.Patience})
	frames := guest.Happened()
	listing := func(event string) guest.Module {
		return guest.Module{
			Bad: "shop", Frames: frames, Handle: guest.Span(guest.FramesAt, uint32(len(frames))),
			Manifest: `{"abi":1,"name":"shop","version":"1","entityTypes":[{"name":"shop","kind":"event-sourced","encoding":"bytes","events":[{"type":"` + event + `"}]}]}`,
		}
	}
	first := v.upload(listing("happened").Build(), true)
	for i := range entities {
		if _, err := v.c.Send(t.Context(), client.Command{EntityType: "shop", EntityID: fmt.Sprint("e", i), Name: "go"}); err != nil {
			t.Fatal(err)
		}
	}
	lacking := v.upload(listing("renamed").Build(), false)
	failing := listing("happened")
	failing.Apply = []byte{0x20, 1, 0x04, 0x40, 0x00, 0x0b, 0x41, 0} // traps on any event
	broken := v.upload(failing.Build(), false)
	for at := range 3 {
		n := v.Node(at)
		for digest, want := range map[string]string{lacking: fmt.Sprintf("happened (%d)", entities), broken: "at event 1 (happened)"} {
			if out, code := n.Run("module", "activate", "shop", digest, "--addr", n.API()); code == 0 || !strings.Contains(out, want) {
				t.Errorf("node %d: activate ends with %d: %s", at, code, out)
			}
		}
	}
	changed := filepath.Join(t.TempDir(), "changed.wasm")
	if err := os.WriteFile(changed, listing("renamed").Build(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, second := range []string{lacking[:12], changed} {
		n := v.Node(1)
		if out, code := n.Run("module", "diff", first, second, "--addr", n.API()); code != 3 || !strings.Contains(out, "event happened") || !strings.Contains(out, "removed") {
			t.Errorf("module diff with %s ends with %d: %s", second, code, out)
		}
		if out, code := n.Run("module", "diff", second, second, "--addr", n.API()); code != 0 || !strings.Contains(out, "no difference") {
			t.Errorf("module diff with itself ends with %d: %s", code, out)
		}
	}
	var refused *client.Error
	if _, err := v.c.Activate(t.Context(), "shop", lacking); !errors.As(err, &refused) || refused.Reason != "INCOMPATIBLE_EVENTS" {
		t.Errorf("%v", err)
	}
	n := v.Node(0)
	if out, code := n.Run("module", "activate", "shop", lacking, "--force", "--addr", n.API()); code != 0 || !strings.Contains(out, "note: shop: ") {
		t.Errorf("forced: activate ends with %d: %s", code, out)
	}
}
