package journal

import (
	"crypto/sha256"
	"hash"
)

// hashedAtOnce is how many bytes are hashed in one go: the hash is a loop of
// assembly that nothing can stop, so a collection would wait, and every
// goroutine with it, until the end of a module of 16 MiB.
const hashedAtOnce = 256 << 10

// HashPieces writes b to a hash in pieces between which the goroutine can be
// stopped.
func HashPieces(to hash.Hash, b []byte) {
	for len(b) > hashedAtOnce {
		to.Write(b[:hashedAtOnce])
		b = b[hashedAtOnce:]
	}
	to.Write(b)
}

// DigestOf returns the digest a module is known by.
func DigestOf(wasm []byte) (d Digest) {
	sum := sha256.New()
	HashPieces(sum, wasm)
	sum.Sum(d[:0])
	return d
}
