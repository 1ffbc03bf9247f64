package abi

import "iter"

const (
	// MaxPrincipalBytes limits the body of a principal frame.
	MaxPrincipalBytes = 4 << 10
	// PrincipalExtraBytes is the number of bytes by which the input of
	// hostd_handle and hostd_query may exceed Limits.RequestBytes, because the
	// frame is not part of the caller's payload.
	PrincipalExtraBytes = HeaderBytes + MaxPrincipalBytes
)

// Principal is the caller of a command or a query, if the host authenticates
// callers. Its slices are sub-slices of the frame.
type Principal struct {
	Kind   []byte // kind of credential: "token", "jwt", "certificate", or "anonymous" without one
	Name   []byte // unique within its kind; empty for anonymous callers
	groups []byte
}

// Groups returns the groups that the issuer of the credential lists, in its
// order.
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

// DecodePrincipal decodes the body of a principal frame.
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
