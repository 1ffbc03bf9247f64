package engine

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tetratelabs/wazero"
)

// damagedCachePrefix begins the runtime's errors about its cache files.
const damagedCachePrefix = "compilationcache:"

// compilationCache is the directory of compiled modules. The runtime names
// and reads its files; a file is keyed by the prepared module, the runtime's
// version and the CPU's features.
type compilationCache struct {
	dir   string
	files wazero.CompilationCache
	// sums are the recorded checksums by file. One compilation at a time uses
	// them.
	sums map[string]uint32
}

func openCompilationCache(dir string) (*compilationCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	files, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	c := &compilationCache{dir: dir, files: files, sums: map[string]uint32{}}
	// One engine has the directory, and no compilation is under way in a child
	// of it that is not being waited for: these are leftovers of a kill.
	return c, c.remove("*.tmp")
}

// clear removes every compiled module: which file is damaged only the runtime
// knows, and all of them can be made again.
func (c *compilationCache) clear() error {
	c.sums = map[string]uint32{}
	return c.remove("*")
}

func (c *compilationCache) remove(pattern string) error {
	names, err := filepath.Glob(filepath.Join(c.dir, "wazero-*", pattern))
	if err != nil {
		return fmt.Errorf("clear the compilation cache: %w", err)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("clear the compilation cache: %w", err)
		}
	}
	return nil
}
