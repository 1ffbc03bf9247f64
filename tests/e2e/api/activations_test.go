package api

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestConcurrentActivationsAreAnswered checks that each of several concurrent activations gets
// an answer, and that the module of the highest revision is then active.
func TestConcurrentActivationsAreAnswered(t *testing.T) {
	s := start(t, testkit.NodeOptions{})
	s.upload(t, release("0"))
	const many = 6
	var digests []string
	for i := range many {
		res, err := s.call(t.Context(), &modulev1.UploadModuleRequest{Wasm: release(fmt.Sprint(i + 1)).Build()})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, res.(*modulev1.UploadModuleResponse).GetDigest())
	}
	type outcome struct {
		digest   string
		revision uint64
		err      error
	}
	outcomes := make(chan outcome, many)
	for _, d := range digests {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
			defer cancel()
			res, err := s.call(ctx, &modulev1.ActivateModuleRequest{EntityType: "shop", Digest: d})
			out := outcome{digest: d, err: err}
			if err == nil {
				out.revision = res.(*modulev1.ActivateModuleResponse).GetRevision()
			}
			outcomes <- out
		}()
	}
	var last outcome
	var revisions []uint64
	for range many {
		o := <-outcomes
		if o.err != nil && connect.CodeOf(o.err) != connect.CodeFailedPrecondition {
			t.Error(o.err)
		}
		if o.err == nil {
			if slices.Contains(revisions, o.revision) {
				t.Errorf("two were bound under revision %d", o.revision)
			}
			revisions = append(revisions, o.revision)
		}
		if o.revision > last.revision {
			last = o
		}
	}
	res, err := s.call(t.Context(), &modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_EntityType{EntityType: "shop"}})
	if err != nil || res.(*modulev1.GetModuleResponse).GetModule().GetDigest() != last.digest {
		t.Errorf("%v serves, want %s: %v", res, last.digest, err)
	}
}
