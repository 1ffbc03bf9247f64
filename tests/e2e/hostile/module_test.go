package hostile

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestRejectedModuleIsNotCompiledAgain checks that a module that fails to
// compile, or fails its trial, is compiled only once, and that other users are
// served meanwhile.
func TestRejectedModuleIsNotCompiledAgain(t *testing.T) {
	t.Parallel()
	node := testkit.StartNode(t, testkit.NodeOptions{})
	beside := newNeighbour(t, node)
	c := node.Client(client.Options{Timeout: testkit.Patience})
	upload := func(wasm []byte) error {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		_, err := c.Upload(ctx, wasm, true)
		return err
	}
	const again = "rejected it before"
	nested := func(n int) []byte {
		return slices.Concat(slices.Repeat([]byte{0x03, 0x40}, n), slices.Repeat([]byte{0x0b}, n), guest.Count(1))
	}
	for name, m := range map[string]guest.Module{
		"another contract": {Bad: "bad", ABI: 7},
		"nested loops":     {Bad: "bad", Handle: nested(9_900)},
		"a wrong manifest": {Bad: "bad", Manifest: `{"abi":1}`},
	} {
		wasm := m.Build()
		first := upload(wasm)
		if first == nil || strings.Contains(first.Error(), again) {
			t.Fatalf("%s: %v", name, first)
		}
		beside.adds()
		if second := upload(wasm); second == nil || !strings.Contains(second.Error(), again) || !strings.HasPrefix(second.Error(), first.Error()) {
			t.Errorf("%s: first %v, then %v", name, first, second)
		}
		beside.adds()
	}
	if err := upload(guest.Module{Bad: "deep", Handle: nested(500)}.Build()); err != nil {
		t.Errorf("500 nested loops: %v", err)
	}
}

// TestLargeHonestModule checks that a module of the maximum size is accepted
// and serves its entities, and that other users are served meanwhile.
func TestLargeHonestModule(t *testing.T) {
	const size = 16 << 20
	node := testkit.StartNode(t, testkit.NodeOptions{})
	beside := newNeighbour(t, node)
	m := guest.Module{Good: "large", Frames: make([]byte, size), MemoryPages: size>>16 + 8}
	for i := range m.Frames {
		m.Frames[i] = byte(i*i>>8) | 1 // not zero, so that no part is omitted
	}
	m.Frames = m.Frames[:size-(len(m.Build())-size)-64]
	wasm := m.Build()
	if len(wasm) > size || len(wasm) < size-4096 {
		t.Fatalf("the module has %d bytes", len(wasm))
	}
	done := make(chan error, 1)
	c := node.Client(client.Options{Timeout: testkit.Patience})
	go func() {
		_, err := c.Upload(context.WithoutCancel(t.Context()), wasm, true)
		done <- err
	}()
	for uploading := true; uploading; {
		beside.adds()
		select {
		case err := <-done:
			if uploading = false; err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
	for range 3 {
		if _, err := c.Send(t.Context(), client.Command{EntityType: "large", EntityID: "a", Name: "do"}); err != nil {
			t.Error(err)
		}
	}
}
