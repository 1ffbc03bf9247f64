package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Bounds of a file of trusted keys.
const (
	maxKeys      = 1024
	maxFileBytes = 1 << 20
	maxNameBytes = 64
)

// Keys are the public keys of a module-trust-file. They are immutable.
type Keys struct {
	names map[[ed25519.PublicKeySize]byte]string
}

// Line returns the line of a module-trust-file for a key.
func Line(name string, key ed25519.PublicKey) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	return name + ":" + base64.StdEncoding.EncodeToString(key), nil
}

// parseKeys parses the lines of a module-trust-file, which have the form
// name:key, where key is the base64 encoding of 32 bytes. It ignores empty
// lines and comment lines, which begin with #. An empty file is an error,
// because it may be only partly written; a file without keys must contain a
// comment. A name may have several keys. One invalid line makes the whole file
// invalid. The error contains the number of the line but not its text.
func parseKeys(text []byte) (*Keys, error) {
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("the file has more than %d bytes", maxFileBytes)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("the file is empty: if it has no keys, it needs a line such as '# none'")
	}
	k := &Keys{names: map[[ed25519.PublicKeySize]byte]string{}}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		content := strings.TrimSpace(string(line))
		if content == "" || content[0] == '#' {
			continue
		}
		key, name, err := parseLine(content)
		switch {
		case err != nil:
		case k.names[key] != "":
			err = errors.New("the file lists the key twice")
		case len(k.names) == maxKeys:
			err = fmt.Errorf("the file has more than %d keys", maxKeys)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		k.names[key] = name
	}
	return k, nil
}

func parseLine(line string) (key [ed25519.PublicKeySize]byte, name string, err error) {
	name, text, found := strings.Cut(line, ":")
	if !found {
		return key, "", errors.New("the line must be name:key")
	}
	if err := checkName(name); err != nil {
		return key, "", err
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(decoded) != len(key) {
		return key, "", fmt.Errorf("a key must be the base64 of %d bytes", len(key))
	}
	return [ed25519.PublicKeySize]byte(decoded), name, nil
}

// checkName restricts names of keys to [A-Za-z0-9._-].
func checkName(name string) error {
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("the name of a key must have 1 to %d bytes", maxNameBytes)
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return errors.New("the name of a key has a character outside [A-Za-z0-9._-]")
		}
	}
	return nil
}

// Judge returns the name of the key that has signed a module, or an *Error. It
// verifies the signature before it looks up the key, so an invalid signature is
// never attributed to anyone.
func (k *Keys) Judge(s Statement, signature []byte) (by string, err error) {
	if len(signature) == 0 {
		return "", &Error{Missing}
	}
	key, signed, ok := split(signature)
	if !ok || !ed25519.Verify(key, s.message(), signed) {
		return "", &Error{Bad}
	}
	if by = k.names[[ed25519.PublicKeySize]byte(key)]; by == "" {
		return "", &Error{Untrusted}
	}
	return by, nil
}

// Possible reports whether a signature could be trusted before the module's
// name and version are known. It returns nil, or an *Error if the signature
// cannot be trusted.
func (k *Keys) Possible(signature []byte) error {
	if len(signature) == 0 {
		return &Error{Missing}
	}
	key, _, ok := split(signature)
	switch {
	case !ok:
		return &Error{Bad}
	case k.names[[ed25519.PublicKeySize]byte(key)] == "":
		return &Error{Untrusted}
	}
	return nil
}

// Reason is why a signature is not trusted. Reasons are part of the API.
type Reason string

// The reasons.
const (
	Missing   Reason = "SIGNATURE_MISSING"
	Untrusted Reason = "SIGNATURE_UNTRUSTED" // the node does not trust the key of the signature
	Bad       Reason = "SIGNATURE_BAD"       // the signature covers something else, or is not a signature
)

// Reasons lists all reasons.
var Reasons = [...]Reason{Missing, Untrusted, Bad}

// Error reports that a module's signature is not trusted on this node.
type Error struct{ Reason Reason }

func (e *Error) Error() string {
	switch e.Reason {
	case Missing:
		return "the module is not signed"
	case Untrusted:
		return "the module is signed with a key that the node does not trust"
	}
	return "the signature does not match the module"
}
