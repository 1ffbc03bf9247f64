package access

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Limits on tokens.
const (
	MaxTokens         = 1024
	MaxTokenNameBytes = 128
)

// TokenHash is the SHA-256 hash of a token. The token cannot be recovered from
// it.
type TokenHash [sha256.Size]byte

// HashToken hashes a token.
func HashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// MarshalText implements encoding.TextMarshaler. The text is hexadecimal.
func (h TokenHash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *TokenHash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return invalid("a token hash must have %d hexadecimal digits, got %d", hex.EncodedLen(len(h)), len(text))
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return invalid("the token hash is not hexadecimal")
	}
	return nil
}

// Token is the stored form of a token. It contains the hash but not the secret.
type Token struct {
	Name string    `json:"name"` // name of the bearer; the subject is token:NAME
	Hash TokenHash `json:"hash"`
	// Expires is the expiry time in Unix seconds; 0 means never.
	Expires int64 `json:"expires,omitempty"`
	// CreatedAt is the creation time in Unix nanoseconds.
	CreatedAt int64 `json:"made,omitempty"`
	// Revision is the revision of the set of roles, bindings and tokens at
	// which this token was written.
	Revision uint64 `json:"revision,omitempty"`
}

// Subject returns the subject of the token's bearer.
func (t Token) Subject() string { return KindToken + ":" + t.Name }

// Check returns an error wrapping ErrInvalid if the token is invalid.
func (t Token) Check() error {
	switch err := CheckTokenName(t.Name); {
	case err != nil:
		return err
	case t.Hash == TokenHash{} || t.Hash == HashToken(""):
		return invalid("the token hash is all zeros or the hash of an empty token")
	case t.Expires < 0 || t.CreatedAt < 0:
		return invalid("the creation and expiry times of a token must not be before 1970")
	}
	return nil
}

// CheckTokenName returns an error wrapping ErrInvalid if the name is not a
// valid token name.
func CheckTokenName(name string) error {
	if name == "" || len(name) > MaxTokenNameBytes {
		return invalid("the name of a token must have 1 to %d bytes, got %d", MaxTokenNameBytes, len(name))
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._@-", c) >= 0) {
			return invalid("the name of a token may have only letters, digits and ._@-")
		}
	}
	return nil
}
