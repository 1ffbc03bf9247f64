package access

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Bounds of tokens.
const (
	MaxTokens         = 1024
	MaxTokenNameBytes = 128
)

// TokenHash is the SHA-256 of a token. Nobody makes a token of it.
type TokenHash [sha256.Size]byte

// HashToken hashes a token.
func HashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// MarshalText implements encoding.TextMarshaler: hexadecimal digits.
func (h TokenHash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *TokenHash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return invalid("a hash has %d hexadecimal digits, this has %d", hex.EncodedLen(len(h)), len(text))
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return invalid("the hash is not hexadecimal")
	}
	return nil
}

// Token is what is kept of a token: nothing by which anybody could show it.
type Token struct {
	Name string    `json:"name"` // its bearer's; token:NAME is the subject
	Hash TokenHash `json:"hash"`
	// Expires is when it ends, in unix seconds; 0 is never.
	Expires int64 `json:"expires,omitempty"`
	// Made is when it was made, in unix nanoseconds.
	Made int64 `json:"made,omitempty"`
	// Revision is that of all roles, bindings and tokens when it was put.
	Revision uint64 `json:"revision,omitempty"`
}

// Subject is the token's bearer.
func (t Token) Subject() string { return KindToken + ":" + t.Name }

// Check says whether the token may be kept: ErrInvalid.
func (t Token) Check() error {
	switch err := CheckTokenName(t.Name); {
	case err != nil:
		return err
	case t.Hash == TokenHash{} || t.Hash == HashToken(""):
		return invalid("the hash is of no token")
	case t.Expires < 0 || t.Made < 0:
		return invalid("the time of a token is before 1970")
	}
	return nil
}

// CheckTokenName refuses what is no name of a token.
func CheckTokenName(name string) error {
	if name == "" || len(name) > MaxTokenNameBytes {
		return invalid("the name of a token has 1 to %d bytes, this has %d", MaxTokenNameBytes, len(name))
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._@-", c) >= 0) {
			return invalid("the name of a token has letters, digits and ._@- only")
		}
	}
	return nil
}
