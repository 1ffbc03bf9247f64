//go:build !linux

package store

// MappedBytes is 0 where it is not known.
func MappedBytes() (int64, error) { return 0, nil }

func releasePages(map[string]bool) (int64, error) { return 0, nil }

func mappedTable(uintptr) string { return "" }
