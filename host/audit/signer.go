package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hostd/hostd/host/files"
)

// stageCheckpoint is the stage of a line that the node signs.
const stageCheckpoint = "checkpoint"

// checkpointEvery bounds how long lines stay unsigned. The first line after
// that time is preceded by a checkpoint.
const checkpointEvery = time.Hour

// checkpointSlack is a tolerance for lines whose time is older than their place
// in the file, because lines wait in the queue.
const checkpointSlack = time.Minute

// checkpoint is a signature of all lines before the line that contains it.
type checkpoint struct {
	Key       []byte `json:"key"` // public Ed25519 key
	Signature []byte `json:"signature"`
}

// Signer holds the node's private key for checkpoints. It is safe for
// concurrent use.
type Signer struct{ key ed25519.PrivateKey }

// OpenSigner reads the private key from a file. If the file does not exist, it
// creates a key. Anybody who can read the file can sign for the node.
func OpenSigner(path string) (*Signer, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		text, err = newSecret(path)
	}
	if err != nil {
		return nil, fmt.Errorf("key of the audit log: %w", err)
	}
	seed := make([]byte, ed25519.SeedSize)
	if n, err := hex.Decode(seed, text[:min(len(text), 2*len(seed))]); err != nil || n != len(seed) {
		return nil, fmt.Errorf("key of the audit log: %s must contain %d bytes in hexadecimal digits", path, len(seed))
	}
	return &Signer{ed25519.NewKeyFromSeed(seed)}, nil
}

// newSecret creates a key and writes it atomically.
func newSecret(path string) (text []byte, err error) {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	text = append(hex.AppendEncode(nil, seed), '\n')
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return text, files.Replace(path, text, 0o600)
}

// Public returns the public key in base64, as Verify expects it.
func (s *Signer) Public() string {
	return base64.StdEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

// sign makes l a checkpoint of all lines before it. l.Prev must be set.
func (s *Signer) sign(l *line) {
	l.Checkpoint = &checkpoint{Key: s.key.Public().(ed25519.PublicKey), Signature: ed25519.Sign(s.key, l.signedBytes())}
}

// signedBytes returns the bytes that the signature of a checkpoint covers.
func (l *line) signedBytes() []byte {
	return fmt.Appendf(nil, "hostd audit checkpoint v1\n%s\n%s\n%s\n", l.Node, l.Time.UTC().Format(time.RFC3339Nano), l.Prev)
}

// holds reports whether the signature of a checkpoint is valid for the key in
// it.
func (l *line) holds() bool {
	c := l.Checkpoint
	return len(c.Key) == ed25519.PublicKeySize && ed25519.Verify(c.Key, l.signedBytes(), c.Signature)
}
