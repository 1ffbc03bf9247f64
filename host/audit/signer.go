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

// StageCheckpoint is that of a line that the node signs.
const StageCheckpoint = "checkpoint"

// CheckpointEvery is how long lines stay unsigned: the first line after that
// time comes behind a checkpoint.
const CheckpointEvery = time.Hour

// checkpointSlack is by how much a line may be older than its place: it waits
// between its time and its writing.
const checkpointSlack = time.Minute

// Checkpoint signs all lines before its own.
type Checkpoint struct {
	Key       []byte `json:"key"` // public, of ed25519
	Signature []byte `json:"signature"`
}

// Signer has a node's secret: the key of its checkpoints. It is safe for
// concurrent use.
type Signer struct{ key ed25519.PrivateKey }

// OpenSigner reads the secret of a file, and makes both where the file is
// missing. Who reads it can sign for the node.
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
		return nil, fmt.Errorf("key of the audit log: %s does not hold %d bytes in hexadecimal digits", path, len(seed))
	}
	return &Signer{ed25519.NewKeyFromSeed(seed)}, nil
}

// newSecret writes a secret that is there whole or not at all.
func newSecret(path string) (text []byte, err error) {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	text = append(hex.AppendEncode(nil, seed), '\n')
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return text, files.Replace(path, text, 0o600)
}

// Public is the key that Verify takes, in base64.
func (s *Signer) Public() string {
	return base64.StdEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

// sign makes a line a checkpoint of all that come before it.
func (s *Signer) sign(l *line) {
	l.Checkpoint = &Checkpoint{Key: s.key.Public().(ed25519.PublicKey), Signature: ed25519.Sign(s.key, l.signed())}
}

// signed is what the signature of a checkpoint is of.
func (l *line) signed() []byte {
	return fmt.Appendf(nil, "hostd audit checkpoint v1\n%s\n%s\n%s\n", l.Node, l.Time.UTC().Format(time.RFC3339Nano), l.Prev)
}

// holds says whether a checkpoint is signed by its key.
func (l *line) holds() bool {
	c := l.Checkpoint
	return len(c.Key) == ed25519.PublicKeySize && ed25519.Verify(c.Key, l.signed(), c.Signature)
}
