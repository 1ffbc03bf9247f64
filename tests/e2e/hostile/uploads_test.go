package hostile

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestEndlessUploadsDoNotBlockOthers continuously uploads modules that take
// long to compile, several at a time, from two addresses. The modules of a
// third address must still be accepted in turn, and the neighbour's commands
// must succeed.
func TestEndlessUploadsDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	node := testkit.StartNode(t, testkit.NodeOptions{})
	beside := newNeighbour(t, node)
	modules := func(ip string) modulev1connect.ModuleServiceClient {
		return modulev1connect.NewModuleServiceClient(&http.Client{Transport: transportFrom(t, ip)}, node.API())
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var made atomic.Int32
	module := func(loops int) []byte { // a different module on each call
		return guest.Module{Bad: "slow", Handle: slices.Concat(
			slices.Repeat([]byte{0x03, 0x40}, loops), slices.Repeat([]byte{0x0b}, loops), guest.Count(1000+made.Add(1)))}.Build()
	}
	var uploads, other atomic.Int64
	const callers = 6
	done := make(chan struct{}, callers)
	for i := range callers {
		from := modules([]string{"127.0.0.8", "127.0.0.9"}[i%2])
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				_, err := from.UploadModule(ctx, connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: module(900)}))
				switch {
				case err == nil:
					uploads.Add(1)
				case ctx.Err() == nil && connect.CodeOf(err) != connect.CodeResourceExhausted:
					t.Errorf("an upload without end: %v", err)
					return
				default:
					other.Add(1)
				}
			}
		}()
	}
	node.Await("the uploads go on", func() bool { return uploads.Load() >= 2 })
	honest := modules("127.0.0.2")
	for i := range 5 {
		before := uploads.Load()
		if _, err := honest.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: module(1)})); err != nil {
			t.Errorf("the neighbour's upload %d: %v", i, err)
		}
		// One upload of each address may have been in progress, and the answers to
		// these uploads and to the next ones may arrive before the answer to this
		// upload.
		if n := uploads.Load() - before; n > 8 {
			t.Errorf("%d uploads of others were ended before the neighbour's", n)
		}
		beside.adds()
	}
	t.Logf("%d uploads of others, %d refused", uploads.Load(), other.Load())
	end()
	for range callers {
		<-done
	}
	if text, code := node.Run("module", "ls", "--addr", node.API()); code != 0 || !strings.Contains(text, "counter") {
		t.Errorf("%d: %s", code, text)
	}
}
