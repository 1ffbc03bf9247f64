package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
)

// passedDir is the directory, in that of the compilation cache, with an empty
// file for each module that has passed its trial here.
const passedDir = "passed"

// passedName is the file of a prepared module. The runtime and the processor
// are part of its name: another compiler may take for ever on what this one
// compiles in a second.
func (c *Cache) passedName(prepared []byte) string {
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
func (c *Cache) Passed(prepared []byte) bool {
	_, err := os.Stat(c.passedName(prepared))
	return err == nil
}

// Pass notes that a prepared module has passed its trial.
func (c *Cache) Pass(prepared []byte) error {
	if err := os.MkdirAll(filepath.Join(c.dir, passedDir), 0o700); err != nil {
		return err
	}
	return os.WriteFile(c.passedName(prepared), nil, 0o600)
}
