package principal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// Kind says what a principal was known by.
type Kind string

// The kinds of principals.
const (
	Anonymous Kind = "anonymous" // there was no credential
	Token     Kind = "token"     // a static token
	JWT       Kind = "jwt"       // a token that an issuer has signed
	// Certificate is a certificate that the client showed.
	Certificate Kind = "certificate"
)

// MaxBytes bounds what is said of a principal, encoded.
const MaxBytes = 4 << 10

// maxKindBytes bounds the kinds of later releases.
const maxKindBytes = 32

// Errors of New and Parse.
var (
	ErrTooLarge = fmt.Errorf("kind, name and groups of a principal take more than %d bytes", MaxBytes)
	ErrInvalid  = errors.New("no principal")
)

// Principal is who calls. It is shared between calls: nobody changes it. New
// and Parse make one.
type Principal struct {
	Kind Kind
	// Name is unique within its kind; empty for the anonymous.
	Name string
	// Groups are those that the issuer of the credential names.
	Groups []string

	encoded []byte
}

// New makes a principal. It fails with ErrTooLarge, or with ErrInvalid where a
// text is not UTF-8, or there is no kind.
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
	if size > MaxBytes {
		return nil, ErrTooLarge
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

// anonymous is who calls without a credential.
var anonymous = &Principal{Kind: Anonymous, encoded: []byte("\x09\x00anonymous\x00\x00")}

// OfNobody is who calls without a credential.
func OfNobody() *Principal { return anonymous }

// Encoded is the principal as bytes, which nobody changes: kind, name and each
// group, in this order, as a little-endian u16 of the length and UTF-8.
func (p *Principal) Encoded() []byte { return p.encoded }

// Parse is the inverse of Encoded; it copies. It fails with an ErrInvalid, or
// ErrTooLarge.
func Parse(b []byte) (*Principal, error) {
	if len(b) > MaxBytes {
		return nil, ErrTooLarge
	}
	var texts []string
	for all := string(b); len(all) > 0; {
		if len(all) < 2 {
			return nil, fmt.Errorf("%w: it ends within a length", ErrInvalid)
		}
		n := int(all[0]) | int(all[1])<<8
		if n > len(all)-2 {
			return nil, fmt.Errorf("%w: a text runs past its end", ErrInvalid)
		}
		texts, all = append(texts, all[2:2+n]), all[2+n:]
	}
	if len(texts) < 2 {
		return nil, fmt.Errorf("%w: it has no name", ErrInvalid)
	}
	return New(Kind(texts[0]), texts[1], texts[2:])
}

func appendText(dst []byte, s string) []byte {
	if len(s) > math.MaxUint16 {
		panic("principal: a text that was not bounded")
	}
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(s))), s...)
}
