package datadir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	if err := writeCacheKey(path, key); err != nil {
		return nil, fmt.Errorf("key of the compilation cache: %w", err)
	}
	return key, nil
}

// writeCacheKey writes the key under another name first: one that is cut off is
// none. A key that is lost with the power costs a compilation.
func writeCacheKey(path string, key []byte) error {
	next := path + ".tmp"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(key)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}
