package authn

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"strings"
	"time"

	"github.com/hostd/hostd/sharding/access"
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
	if err := access.CheckTokenName(name); err != nil {
		return "", err
	}
	hash := sha256.Sum256([]byte(token))
	line := name + ":" + hex.EncodeToString(hash[:])
	if !expires.IsZero() {
		line += ":" + expires.UTC().Format(time.RFC3339)
	}
	return line, nil
}
