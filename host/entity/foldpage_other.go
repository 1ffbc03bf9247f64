//go:build !unix

package entity

// mapPage returns zeroed memory without pointers.
func mapPage() ([]byte, error) { return make([]byte, pageBytes), nil }

func unmapPage([]byte) {}
