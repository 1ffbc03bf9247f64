package testkit

import (
	"bytes"
	"testing"
)

func TestBuildExample(t *testing.T) {
	wasm := BuildExample(t, "counter")
	if !bytes.HasPrefix(wasm, []byte("\x00asm\x01\x00\x00\x00")) {
		t.Fatalf("%d bytes, not a Wasm module", len(wasm))
	}
	if again := BuildExample(t, "counter"); &again[0] != &wasm[0] {
		t.Error("built twice")
	}
}
