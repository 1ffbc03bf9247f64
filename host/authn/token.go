package authn

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"time"
)

const (
	// TokenPrefix begins every static token, so that it is known where it does
	// not belong, such as in a repository.
	TokenPrefix = "hst_"
	tokenBytes  = 32 // of randomness
	tokenDigits = 43 // base 62 digits of so many bytes
)

// NewToken makes a token of 256 random bits.
func NewToken() string {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // it does not fail: see crypto/rand
	digits := new(big.Int).SetBytes(random[:]).Text(62)
	return TokenPrefix + strings.Repeat("0", tokenDigits-len(digits)) + digits
}

// TokenLine is the line of a token file for a token. expires is not written
// where it is zero. It fails where the name is none.
func TokenLine(name, token string, expires time.Time) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	hash := sha256.Sum256([]byte(token))
	line := name + ":" + hex.EncodeToString(hash[:])
	if !expires.IsZero() {
		line += ":" + expires.UTC().Format(time.RFC3339)
	}
	return line, nil
}

// maxNameBytes bounds the name of a token.
const maxNameBytes = 128

// checkName refuses what is no name of a token.
func checkName(name string) error {
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("a name has 1 to %d bytes, this has %d", maxNameBytes, len(name))
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._@-", c) >= 0) {
			return fmt.Errorf("a name has letters, digits and ._@- only")
		}
	}
	return nil
}
