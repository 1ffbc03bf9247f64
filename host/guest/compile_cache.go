package guest

import (
	"fmt"
	"os"
	"path/filepath"
)

// compileCache is the directory of compiled modules. The runtime names and
// reads its files; the key of a file is derived from the prepared module, the
// runtime's version and the CPU's features. Only one compilation at a time uses
// it.
type compileCache struct {
	dir  string
	key  []byte
	sums map[string]seal // recorded seals, by file
}

// openCompileCache creates the directory if needed, with mode 0700, because its
// files are code that will be run. It removes temporary files of killed
// compilations. key seals the files, so that files written by anybody without
// the key are not used.
func openCompileCache(dir string, key []byte) (*compileCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	c := &compileCache{dir: dir, key: key, sums: map[string]seal{}}
	// Only one engine uses the directory, and that engine waits for all its child
	// processes, so these files are left over from killed ones.
	return c, c.remove("*.tmp")
}

// Clear removes every compiled module, because only the runtime knows which
// file is damaged. All of them can be compiled again.
func (c *compileCache) Clear() error {
	c.sums = map[string]seal{}
	return c.remove("*")
}

func (c *compileCache) remove(pattern string) error {
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
