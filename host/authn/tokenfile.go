package authn

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// Limits of a token file.
const (
	maxTokens         = access.MaxTokens
	maxTokenFileBytes = 1 << 20
)

// tokenTable holds the tokens of a token file or of the metadata.
type tokenTable struct {
	hashes     [][sha256.Size]byte
	principals []*Principal // with the same indexes as hashes
}

// parseTokens parses the lines of a token file, name:sha256hex[:expires], where
// expires has the format of RFC 3339. Empty lines and lines that start with #
// are ignored. A file without tokens needs a comment line, because an empty
// file may not have been written yet. One invalid line makes the whole file
// invalid; the error contains its number but none of its text, which may be a
// secret.
func parseTokens(text []byte) (*tokenTable, error) {
	if len(text) > maxTokenFileBytes {
		return nil, fmt.Errorf("the file has more than %d bytes", maxTokenFileBytes)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("the file is empty: if it has no tokens, it needs a line such as '# none'")
	}
	t := &tokenTable{}
	seen := map[[sha256.Size]byte]bool{}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		content := strings.TrimSpace(string(line))
		if content == "" || content[0] == '#' {
			continue
		}
		hash, p, err := parseToken(content)
		switch {
		case err != nil:
		case seen[hash]:
			err = errors.New("the file lists the token twice")
		case len(t.hashes) == maxTokens:
			err = fmt.Errorf("the file has more than %d tokens", maxTokens)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		seen[hash] = true
		t.hashes, t.principals = append(t.hashes, hash), append(t.principals, p)
	}
	return t, nil
}

// parseToken parses one line.
func parseToken(line string) (hash [sha256.Size]byte, p *Principal, err error) {
	parts := strings.SplitN(line, ":", 3)
	if isToken(line) {
		return hash, nil, errors.New("the line contains a token instead of its hash: 'hostd token create NAME --file FILE' appends a line name:sha256hex[:expires]")
	}
	if len(parts) < 2 {
		return hash, nil, errors.New("the line must be name:sha256hex[:expires]")
	}
	if err := access.CheckTokenName(parts[0]); err != nil {
		return hash, nil, err
	}
	if len(parts[1]) != hex.EncodedLen(len(hash)) {
		return hash, nil, fmt.Errorf("the hash must have %d hexadecimal digits", hex.EncodedLen(len(hash)))
	}
	if _, err := hex.Decode(hash[:], []byte(parts[1])); err != nil {
		return hash, nil, errors.New("the hash is not hexadecimal")
	}
	who, err := principal.New(KindToken, parts[0], nil)
	if err != nil {
		return hash, nil, err
	}
	p = &Principal{Principal: who}
	if len(parts) == 3 {
		if p.Expires, err = time.Parse(time.RFC3339, parts[2]); err != nil || p.Expires.IsZero() {
			return hash, nil, errors.New("the expiry time must be in RFC 3339, such as 2030-01-31T00:00:00Z")
		}
	}
	return hash, p, nil
}

// isToken reports whether a line is a static token or a JWT itself, instead of
// the hash of one.
func isToken(line string) bool {
	return !strings.Contains(line, ":") && (strings.HasPrefix(line, tokenPrefix) || strings.Count(line, ".") == 2)
}

// keptTokens returns the table of the tokens in the metadata.
func keptTokens(tokens []access.Token) *tokenTable {
	t := &tokenTable{}
	for _, k := range tokens {
		who, err := principal.New(KindToken, k.Name, nil)
		if err != nil {
			continue // cannot happen, because the metadata has checked the name
		}
		p := &Principal{Principal: who}
		if k.Expires != 0 {
			p.Expires = time.Unix(k.Expires, 0).UTC()
		}
		t.hashes, t.principals = append(t.hashes, k.Hash), append(t.principals, p)
	}
	return t
}

// has reports whether the table contains a token with this name.
func (t *tokenTable) has(name string) bool {
	return slices.ContainsFunc(t.principals, func(p *Principal) bool { return p.Name == name })
}

// find returns the owner of the token with this hash, or nil. It compares all
// lines in constant time, so that the time reveals nothing about the hashes.
func (t *tokenTable) find(hash [sha256.Size]byte) *Principal {
	found := -1
	for i := range t.hashes {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], t.hashes[i][:]), i, found)
	}
	if found < 0 {
		return nil
	}
	return t.principals[found]
}
