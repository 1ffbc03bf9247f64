package guest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
)

// passedDir is the subdirectory of the compilation cache with one file for each
// module that has passed its trial on this node. The content of the file is the
// HMAC-SHA256 of its name with the key of the cache.
const passedDir = "passed"

// passedName returns the file of a prepared module. Its name also depends on
// the runtime and the processor, because a different compiler may never
// finish on a module that this compiler compiles in a second.
func (c *compileCache) passedName(prepared []byte) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s/%s %s\n", runtimeVersion(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	sum.Write(prepared)
	return filepath.Join(c.dir, passedDir, hex.EncodeToString(sum.Sum(nil)))
}

// runtimeVersion returns the version of the Wasm runtime in this program.
func runtimeVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/tetratelabs/wazero" {
			return module.Version
		}
	}
	return ""
}

// HasPassed reports whether a prepared module has passed its trial on this node.
func (c *compileCache) HasPassed(prepared []byte) bool {
	name := c.passedName(prepared)
	mark, err := os.ReadFile(name)
	return err == nil && hmac.Equal(mark, c.mark(name))
}

// mark returns the expected content of the file of a module that has passed.
func (c *compileCache) mark(name string) []byte {
	sum := hmac.New(sha256.New, c.key)
	fmt.Fprintf(sum, "%s/%s", passedDir, filepath.Base(name))
	return sum.Sum(nil)
}

// Pass records that a prepared module has passed its trial.
func (c *compileCache) Pass(prepared []byte) error {
	if err := os.MkdirAll(filepath.Join(c.dir, passedDir), 0o700); err != nil {
		return err
	}
	name := c.passedName(prepared)
	return os.WriteFile(name, c.mark(name), 0o600)
}
