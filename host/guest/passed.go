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

// passedDir is the directory, in that of the compilation cache, with a file for
// each module that has passed its trial here. Its content is the HMAC-SHA256 of
// its name with the key of the cache.
const passedDir = "passed"

// passedName is the file of a prepared module. The runtime and the processor
// are part of its name: another compiler may take for ever on what this one
// compiles in a second.
func (c *compileCache) passedName(prepared []byte) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s/%s %s\n", runtimeVersion(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	sum.Write(prepared)
	return filepath.Join(c.dir, passedDir, hex.EncodeToString(sum.Sum(nil)))
}

// runtimeVersion is the version of the Wasm runtime this program is built with.
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

// Passed reports whether a prepared module has passed its trial here before.
func (c *compileCache) Passed(prepared []byte) bool {
	name := c.passedName(prepared)
	mark, err := os.ReadFile(name)
	return err == nil && hmac.Equal(mark, c.mark(name))
}

// mark is what the file of a module has in it that has passed.
func (c *compileCache) mark(name string) []byte {
	sum := hmac.New(sha256.New, c.key)
	fmt.Fprintf(sum, "%s/%s", passedDir, filepath.Base(name))
	return sum.Sum(nil)
}

// Pass notes that a prepared module has passed its trial.
func (c *compileCache) Pass(prepared []byte) error {
	if err := os.MkdirAll(filepath.Join(c.dir, passedDir), 0o700); err != nil {
		return err
	}
	name := c.passedName(prepared)
	return os.WriteFile(name, c.mark(name), 0o600)
}
