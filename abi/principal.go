package abi

import "iter"

const (
	// MaxPrincipalBytes bounds the body of a principal frame.
	MaxPrincipalBytes = 4 << 10
	// PrincipalExtraBytes is how much more than Limits.RequestBytes the input of
	// hostd_handle and hostd_query may have: the frame is none of the caller's
	// payload.
	PrincipalExtraBytes = HeaderBytes + MaxPrincipalBytes
)

// Principal says who made a command or a query, where the host asks who calls.
// Its slices are sub-slices of the frame.
type Principal struct {
	Kind   []byte // of credential: "token", "jwt", "certificate"; "anonymous" has none
	Name   []byte // unique within its kind; empty for the anonymous
	groups []byte
}

// Groups are those that the issuer of the credential names, in its order.
func (p *Principal) Groups() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := p.groups; len(rest) > 0; {
			var group []byte
			var ok bool
			if group, rest, ok = cutField(rest); !ok || !yield(group) {
				return
			}
		}
	}
}

// AppendPrincipal appends a principal frame.
func AppendPrincipal(dst []byte, kind, name string, groups ...string) []byte {
	dst, mark := BeginFrame(dst, InPrincipal)
	dst = AppendField(AppendField(dst, kind), name)
	for _, g := range groups {
		dst = AppendField(dst, g)
	}
	EndFrame(dst, mark)
	return dst
}

// DecodePrincipal reads the body of a principal frame.
func DecodePrincipal(body []byte) (Principal, error) {
	var p Principal
	var ok bool
	if p.Kind, body, ok = cutField(body); !ok {
		return Principal{}, errShort
	}
	if p.Name, body, ok = cutField(body); !ok {
		return Principal{}, errShort
	}
	p.groups = body
	for len(body) > 0 {
		if _, body, ok = cutField(body); !ok {
			return Principal{}, errShort
		}
	}
	return p, nil
}
