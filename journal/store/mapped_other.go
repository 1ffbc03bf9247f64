//go:build !linux

package store

// MappedBytes returns 0, because the system does not report it.
func MappedBytes() (int64, error) { return 0, nil }

func releasePages(map[string]bool) (int64, error) { return 0, nil }

func mappedTable(uintptr) string { return "" }
