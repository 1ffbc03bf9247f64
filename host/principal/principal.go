package principal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// Kind is the kind of credential that identified a principal.
type Kind string

// The kinds of principals.
const (
	Anonymous Kind = "anonymous" // no credential
	Token     Kind = "token"     // a static token
	JWT       Kind = "jwt"       // a token signed by an issuer
	// Certificate is a TLS client certificate.
	Certificate Kind = "certificate"
)

// maxBytes limits the encoded size of a principal.
const maxBytes = 4 << 10

// maxKindBytes limits the length of kinds, including those of later releases.
const maxKindBytes = 32

// Errors of New and Parse.
var (
	errTooLarge = fmt.Errorf("the kind, name and groups of a principal exceed %d bytes", maxBytes)
	ErrInvalid  = errors.New("malformed principal")
)

// Principal is an authenticated caller. New and Parse make a Principal. It
// is shared between calls and must not be changed.
type Principal struct {
	Kind Kind
	// Name is unique within its kind; empty for anonymous callers.
	Name string
	// Groups are the groups that the issuer of the credential states.
	Groups []string

	encoded []byte
}

// New makes a principal. It fails with errTooLarge, or with ErrInvalid if a text
// is not UTF-8 or the kind is empty.
func New(kind Kind, name string, groups []string) (*Principal, error) {
	if kind == "" || len(kind) > maxKindBytes || !utf8.ValidString(string(kind)) || !utf8.ValidString(name) {
		return nil, ErrInvalid
	}
	size := 4 + len(kind) + len(name)
	for _, g := range groups {
		if !utf8.ValidString(g) {
			return nil, ErrInvalid
		}
		size += 2 + len(g)
	}
	if size > maxBytes {
		return nil, errTooLarge
	}
	if len(groups) == 0 {
		groups = nil
	}
	p := &Principal{Kind: kind, Name: name, Groups: slices.Clone(groups), encoded: make([]byte, 0, size)}
	p.encoded = appendText(appendText(p.encoded, string(kind)), name)
	for _, g := range groups {
		p.encoded = appendText(p.encoded, g)
	}
	return p, nil
}

// anonymous is the principal of callers without a credential.
var anonymous = &Principal{Kind: Anonymous, encoded: []byte("\x09\x00anonymous\x00\x00")}

// OfNobody returns the principal of callers without a credential.
func OfNobody() *Principal { return anonymous }

// Bytes returns the principal as bytes, which must not be changed: kind, name
// and each group, in this order, each as its length in a little-endian uint16
// followed by its UTF-8 bytes.
func (p *Principal) Bytes() []byte { return p.encoded }

// Parse is the inverse of Bytes. It copies b. It fails with ErrInvalid or
// errTooLarge.
func Parse(b []byte) (*Principal, error) {
	if len(b) > maxBytes {
		return nil, errTooLarge
	}
	var texts []string
	for all := string(b); len(all) > 0; {
		if len(all) < 2 {
			return nil, fmt.Errorf("%w: truncated length", ErrInvalid)
		}
		n := int(all[0]) | int(all[1])<<8
		if n > len(all)-2 {
			return nil, fmt.Errorf("%w: a text exceeds the encoding", ErrInvalid)
		}
		texts, all = append(texts, all[2:2+n]), all[2+n:]
	}
	if len(texts) < 2 {
		return nil, fmt.Errorf("%w: the name is missing", ErrInvalid)
	}
	return New(Kind(texts[0]), texts[1], texts[2:])
}

func appendText(dst []byte, s string) []byte {
	if len(s) > math.MaxUint16 {
		panic("principal: a text exceeds its limit")
	}
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(s))), s...)
}
