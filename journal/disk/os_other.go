//go:build !linux

package disk

import "os"

func syncData(f *os.File) error { return f.Sync() }

func allocate(f *os.File, size int64) error { return f.Truncate(size) }
