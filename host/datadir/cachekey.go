package datadir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hostd/hostd/host/files"
)

// cacheKeyBytes is the length of the compilation cache's key.
const cacheKeyBytes = 32

// OpenCacheKey returns the key of the directory's compilation cache, from a
// file that only its owner can read. If there is no such file, or others can
// read or write it, it creates a new key, and cached modules are compiled
// again.
func OpenCacheKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, CacheKeyFile)
	about, err := os.Lstat(path)
	if err == nil && about.Mode() == 0o600 {
		key, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("key of the compilation cache: %w", err)
		}
		if len(key) == cacheKeyBytes {
			return key, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("key of the compilation cache: %w", err)
	}
	key := make([]byte, cacheKeyBytes)
	rand.Read(key) // never fails
	if err := files.Replace(path, key, 0o600); err != nil {
		return nil, fmt.Errorf("key of the compilation cache: %w", err)
	}
	return key, nil
}
