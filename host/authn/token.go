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
	// tokenPrefix starts every static token, so that scanners find a leaked
	// token, for example in a repository.
	tokenPrefix = "hst_"
	tokenBytes  = 32 // bytes of random data
	tokenDigits = 43 // base 62 digits of tokenBytes bytes
)

// NewToken returns a new token of 256 random bits.
func NewToken() string {
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // never fails, see crypto/rand
	digits := new(big.Int).SetBytes(random[:]).Text(62)
	return tokenPrefix + strings.Repeat("0", tokenDigits-len(digits)) + digits
}

// TokenLine returns the line for a token in a token file. A zero expires is
// left out. It returns an error if the name is invalid.
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
