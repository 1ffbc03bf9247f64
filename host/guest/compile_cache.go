package guest

import (
	"fmt"
	"os"
	"path/filepath"
)

// compileCache is the directory of compiled modules. The runtime names and reads its
// files; a file is keyed by the prepared module, the runtime's version and the
// CPU's features. One compilation at a time uses it.
type compileCache struct {
	dir  string
	key  []byte
	sums map[string]seal // as they are recorded, by file
}

// openCompileCache makes the directory if it is not there, with mode 0700: its files
// are code that will be run. It removes what compilations that were killed had
// begun. The files are sealed with the key: what somebody without it has
// written is not used.
func openCompileCache(dir string, key []byte) (*compileCache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("compilation cache: %w", err)
	}
	c := &compileCache{dir: dir, key: key, sums: map[string]seal{}}
	// One engine has the directory, and no compilation is under way in a child
	// of it that is not being waited for: these are leftovers of a kill.
	return c, c.remove("*.tmp")
}

// Clear removes every compiled module: which file is damaged only the runtime
// knows, and all of them can be made again.
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
