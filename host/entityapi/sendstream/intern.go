package sendstream

// interner makes strings of bytes that repeat, such as entity types and the
// names of commands. It serves one goroutine and holds on to a bounded number.
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
