package journal

import (
	"crypto/sha256"
	"testing"
)

// TestDigestOf: hashing in pieces is hashing, at every edge of a piece.
func TestDigestOf(t *testing.T) {
	wasm := make([]byte, 3*hashedAtOnce)
	for i := range wasm {
		wasm[i] = byte(i * i >> 7)
	}
	for _, n := range []int{0, 1, hashedAtOnce - 1, hashedAtOnce, hashedAtOnce + 1, 2 * hashedAtOnce, len(wasm) - 1, len(wasm)} {
		if got, want := DigestOf(wasm[:n]), sha256.Sum256(wasm[:n]); got != want {
			t.Errorf("the digest of %d bytes is %s, want %x", n, got, want)
		}
	}
}
