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

// The engine that guests are made of. Another version may number its values in
// another way, so that its bytes are known too.
const (
	enginePackage = "quickjs-wasi"
	engineVersion = "3.6.2"
	engineFile    = "quickjs.wasm"
	engineDigest  = "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9"
	// maxEngine bounds what is read of a file that should be the engine.
	maxEngine = 4 << 20
)

const install = "Run 'npm ci' in the project, or 'npm install " + enginePackage + "@" + engineVersion + "' where its package.json does not name it."

// scriptName is what the script is called in the engine's traces.
const scriptName = "app.js"

// entries are where the script of a project is that names none.
var entries = []string{"src/index.ts", "index.ts", "src/index.js", "index.js"}

// Build builds the project in dir and writes the module to the file out, which
// is written whole or not at all. What is wrong with the project's sources is
// written to log, each fault with its file and line, and the error says how
// many there were. The SDK is that which the project depends on as
// @hostd/guest, or the one that this program carries.
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

// entryOf is the script of a project.
func entryOf(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return "", fmt.Errorf("%s is no project in TypeScript or JavaScript: %w", dir, err)
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
	return "", fmt.Errorf("%s has no script: there is no %s; name it as \"main\" in package.json", dir, strings.Join(candidates, ", "))
}

// findEngine reads the engine of the nearest node_modules that has it.
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
			return nil, cli.Hint(fmt.Errorf("the engine for JavaScript, %s of npm, is missing", enginePackage), install)
		}
		here = filepath.Dir(here)
	}
}

func checkEngine(path string, source []byte) error {
	if sum := sha256.Sum256(source); hex.EncodeToString(sum[:]) != engineDigest {
		return cli.Hint(fmt.Errorf("%s is not that of %s %s", path, enginePackage, engineVersion), install)
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
