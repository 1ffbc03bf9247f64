//go:build !unix

package resident

// mapPage returns zeroed memory without pointers.
func mapPage() ([]byte, error) { return make([]byte, pageBytes), nil }

func unmapPage([]byte) {}
