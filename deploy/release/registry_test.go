package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// checkRegistry stores a module in a registry of go-containerregistry and reads
// it back, with the program and with that library.
func checkRegistry(t *testing.T, r *release) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	dir := t.TempDir()
	wasm := []byte("\x00asm\x01\x00\x00\x00")
	if err := os.WriteFile(filepath.Join(dir, "counter.wasm"), wasm, 0o644); err != nil {
		t.Fatal(err)
	}
	program := r.programs["linux/amd64"]
	ref := strings.TrimPrefix(server.URL, "http://") + "/team/counter:1.0.0"
	out, err := runIn(dir, program, "module", "publish", "counter.wasm", "oci://"+ref, "--plain-http")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := runIn(dir, program, "module", "pull", strings.TrimSpace(out), "--plain-http", "--out", "again.wasm"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if again, err := os.ReadFile(filepath.Join(dir, "again.wasm")); err != nil || !bytes.Equal(again, wasm) {
		t.Errorf("%q, %v", again, err)
	}
	parsed, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(parsed)
	if err != nil {
		t.Fatal(err)
	}
	m, err := image.Manifest()
	if err != nil || len(m.Layers) != 1 || m.Layers[0].MediaType != "application/wasm" || m.Config.MediaType != "application/vnd.wasm.config.v0+json" {
		t.Errorf("%+v, %v", m, err)
	}
}
