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

// cacheKeyBytes is the length of the key of the compilation cache.
const cacheKeyBytes = 32

// OpenCacheKey returns the key of the directory's compilation cache, of which
// its owner alone can read the file. Where there is none, or one that others
// can read or write, it makes a new one: what was compiled before is compiled
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
