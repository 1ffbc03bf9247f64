package quickjs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/files"
)

// The engine that guests are built from. It is pinned by its bytes too, because
// another version may number its values differently.
const (
	enginePackage = "quickjs-wasi"
	engineVersion = "3.6.2"
	engineFile    = "quickjs.wasm"
	engineDigest  = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"
	// maxEngine limits the engine's file.
	maxEngine = 4 << 20
)

const install = "Run 'npm ci' in the project, or 'npm install " + enginePackage + "@" + engineVersion + "' where its package.json does not name it."

// scriptName is the name of the script in the engine's stack traces.
const scriptName = "app.js"

// entries are the default entry points of a project.
var entries = []string{"src/index.ts", "index.ts", "src/index.js", "index.js"}

// Build builds the project in dir and writes the module to the file out
// atomically. Faults in the project's sources are written to log, each with its
// file and line, and the error has their number. The SDK is the project's
// dependency @hostd/guest, or the one embedded in this program.
func Build(ctx context.Context, dir, out string, log io.Writer) error {
	entry, err := entryOf(dir)
	if err != nil {
		return err
	}
	source, err := findEngine(dir)
	if err != nil {
		return err
	}
	e, err := readEngine(source)
	if err != nil {
		return err
	}
	script, lines, err := bundle(dir, entry, log)
	if err != nil {
		return err
	}
	module, err := assemble(e, script, lines)
	if err != nil {
		return fmt.Errorf("extend %s: %w", enginePackage, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return files.Replace(out, module, 0o644)
}

// entryOf returns the entry point of a project.
func entryOf(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return "", fmt.Errorf("%s is not a TypeScript or JavaScript project: %w", dir, err)
	}
	var project struct {
		Main string `json:"main"`
	}
	if err := json.Unmarshal(text, &project); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(dir, "package.json"), err)
	}
	candidates := entries
	if project.Main != "" {
		candidates = []string{project.Main}
	}
	for _, name := range candidates {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s has no script %s; set \"main\" in package.json", dir, strings.Join(candidates, ", "))
}

// findEngine reads the engine from the nearest node_modules that has it.
func findEngine(dir string) ([]byte, error) {
	here, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for {
		path := filepath.Join(here, "node_modules", enginePackage, engineFile)
		source, err := readAtMost(path, maxEngine)
		switch {
		case err == nil:
			return source, checkEngine(path, source)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case filepath.Dir(here) == here:
			return nil, cli.Hint(fmt.Errorf("the JavaScript engine, npm package %s, is missing", enginePackage), install)
		}
		here = filepath.Dir(here)
	}
}

func checkEngine(path string, source []byte) error {
	if sum := sha256.Sum256(source); hex.EncodeToString(sum[:]) != engineDigest {
		return cli.Hint(fmt.Errorf("%s is not the file of %s %s", path, enginePackage, engineVersion), install)
	}
	return nil
}

func readAtMost(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, err
}
