package entityapi

// interner returns one shared string for equal bytes that repeat, such as entity
// types and command names. It must be used by one goroutine, and keeps a limited
// number of strings.
type interner struct{ known map[string]string }

const (
	maxInterned      = 256
	maxInternedBytes = 64
)

func (n *interner) get(b []byte) string {
	if s, ok := n.known[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) <= maxInternedBytes && len(n.known) < maxInterned {
		if n.known == nil {
			n.known = make(map[string]string)
		}
		n.known[s] = s
	}
	return s
}
