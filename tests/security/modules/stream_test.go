package modules

import (
	"context"
	"net/http"
	"os"
	"testing"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestStreamedModuleSignatureIsChecked checks that the signature of a module
// that is uploaded in pieces is checked like the signature of a module that is
// uploaded as a whole, whichever piece contains it, and that two signatures are
// rejected.
func TestStreamedModuleSignatureIsChecked(t *testing.T) {
	node := testkit.NewNode(t, testkit.NodeOptions{})
	f := newFiles(t, node)
	f.write(f.trust, f.key("release"))
	f.key("stranger")
	node.SetFlags("--module-trust-file", f.trust, "--module-signatures", "require")
	node.Start()
	module := f.module("pieces")
	wasm, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	good, bad := read(t, f.sign(module, "release")), read(t, f.sign(module, "stranger"))
	half := len(wasm) / 2
	for _, c := range []struct {
		name   string
		pieces []*modulev1.UploadModuleStreamRequest
		want   connect.Code // 0 if the module is accepted
	}{
		{"none", []*modulev1.UploadModuleStreamRequest{{Wasm: wasm[:half]}, {Wasm: wasm[half:]}}, connect.CodePermissionDenied},
		{"a stranger's", []*modulev1.UploadModuleStreamRequest{{Wasm: wasm[:half], Signature: bad}, {Wasm: wasm[half:]}}, connect.CodePermissionDenied},
		{"of a part", []*modulev1.UploadModuleStreamRequest{{Wasm: wasm[:half], Signature: good}}, connect.CodeInvalidArgument},
		{"two", []*modulev1.UploadModuleStreamRequest{{Wasm: wasm[:half], Signature: good}, {Wasm: wasm[half:], Signature: good}}, connect.CodeInvalidArgument},
		{"activated by a later piece", []*modulev1.UploadModuleStreamRequest{{Wasm: wasm[:half]}, {Wasm: wasm[half:], Signature: good, Activate: true}}, connect.CodeInvalidArgument},
		{"forced by a later piece", []*modulev1.UploadModuleStreamRequest{{Wasm: wasm[:half], Activate: true}, {Wasm: wasm[half:], Signature: good, Force: true}}, connect.CodeInvalidArgument},
		{"with the last piece", []*modulev1.UploadModuleStreamRequest{{Wasm: wasm[:half], Activate: true}, {Wasm: wasm[half:]}, {Signature: good}}, 0},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		stream := modulev1connect.NewModuleServiceClient(http.DefaultClient, node.API()).UploadModuleStream(ctx)
		for _, piece := range c.pieces {
			if err := stream.Send(piece); err != nil {
				break // the response has the error
			}
		}
		_, err := stream.CloseAndReceive()
		cancel()
		if got := connect.CodeOf(err); err == nil && c.want != 0 || err != nil && got != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
