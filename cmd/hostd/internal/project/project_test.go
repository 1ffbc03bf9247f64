package project

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// command runs one of the package's commands.
func command(t *testing.T, args ...string) (code int, out, talk string) {
	t.Helper()
	var o, e bytes.Buffer
	std := cli.Stdio{In: strings.NewReader(""), Out: &o, Err: &e}
	code = cli.Run(t.Context(), cli.Group("hostd", "", NewNew(std), NewBuild(std)), args, std)
	return code, o.String(), e.String()
}

// made creates a Go project and returns its directory.
func made(t *testing.T) string {
	t.Helper()
	// Nothing is fetched: neither the SDK nor another toolchain.
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOTOOLCHAIN", "local")
	dir := filepath.Join(t.TempDir(), "lamp")
	if code, _, talk := command(t, "new", "--lang", "go", dir); code != 0 {
		t.Fatal(talk)
	}
	return dir
}

func edit(t *testing.T, path, old, new string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(old)) {
		t.Fatalf("%s does not have %q", path, old)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(old), []byte(new)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestGoProjectBuilds checks that a new project builds, and that a module that
// does not build or violates the contract replaces no existing module.
func TestGoProjectBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles modules, on one goroutine")
	}
	dir := made(t)
	code, out, talk := command(t, "build", dir)
	file := filepath.Join(dir, "lamp.wasm")
	if code != 0 || strings.TrimSpace(out) != file || !strings.Contains(talk, "from counter; 10 checks passed\n") {
		t.Fatalf("%d\n%s%s", code, out, talk)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(dir, "main.go")
	for _, broken := range []struct{ what, old, new, says string }{
		{"that does not compile", "s.Total += e.Amount", "s.Sum += e.Amount", "s.Sum undefined"},
		{"whose state depends on the clock", "s.Sum += e.Amount", "s.Total += e.Amount * time.Now().UnixNano()", "the check replay of counter failed"},
		{"that panics", "time.Now().UnixNano()", "add(time.Now())", "the guest wrote: panic: no time at all"},
	} {
		edit(t, source, broken.old, broken.new)
		if strings.Contains(broken.new, "add(") {
			edit(t, source, "\nfunc main() {", "\nfunc add(time.Time) int64 { panic(\"no time at all\") }\n\nfunc main() {")
		} else if strings.Contains(broken.new, "time.") {
			edit(t, source, "package main\n", "package main\n\nimport \"time\"\n")
		}
		code, out, talk := command(t, "build", dir)
		if code != cli.ExitFailed || out != "" || !strings.Contains(talk, broken.says) {
			t.Errorf("a project %s: %d\n%s%s", broken.what, code, out, talk)
		}
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, good) {
			t.Errorf("a project %s: the module that was there is not there any more: %v", broken.what, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".hostd-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestProjectFiles checks the files of a project, which exclude the
// SDK's tests.
func TestProjectFiles(t *testing.T) {
	files, err := contents("go", entityTemplate, "lamp")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".gitignore", "README.md", "cases.yaml", "go.mod", "main.go", "main_test.go", "hostd-sdk/go.mod", "hostd-sdk/abi/abi.go", "hostd-sdk/LICENSE", "hostd-sdk/guest-sdk/go/README.md"} {
		if files[want] == nil {
			t.Errorf("no %s", want)
		}
	}
	for name, text := range files {
		if strings.HasPrefix(name, sdkDir) && strings.HasSuffix(name, "_test.go") {
			t.Errorf("%s is a test of the SDK", name)
		}
		if !strings.HasPrefix(name, sdkDir) && (bytes.Contains(text, []byte("PROJECT")) || bytes.Contains(text, []byte("VERSION"))) {
			t.Errorf("%s has a placeholder", name)
		}
	}
}

// TestNewKeepsExistingFiles checks that existing files are not overwritten, and
// that a failure leaves nothing behind.
func TestNewKeepsExistingFiles(t *testing.T) {
	full := filepath.Join(t.TempDir(), "full")
	if err := os.MkdirAll(full, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, "mine"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, talk := command(t, "new", full); code != cli.ExitFailed || !strings.Contains(talk, "not empty") {
		t.Errorf("%d %s", code, talk)
	}
	if left := list(t, full); !slices.Equal(left, []string{"mine"}) {
		t.Errorf("there is %q", left)
	}
	for _, bad := range []string{"Lamp", "9lives", "a b", "-x", strings.Repeat("a", 64)} {
		if code, _, talk := command(t, "new", "--", bad); code != cli.ExitUsage || !strings.Contains(talk, "is not a project name") {
			t.Errorf("%q: %d %s", bad, code, talk)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	// A file where a directory is needed.
	if err := write(empty, map[string][]byte{"a/b": nil, "a": nil, "c/d": nil}); err == nil {
		t.Error("a file became a directory")
	}
	if left := list(t, empty); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	if err := write(absent, map[string][]byte{"a/b": nil, "a": nil}); err == nil || list(t, absent) != nil {
		t.Errorf("%v, left %q", err, list(t, absent))
	}
	if code, _, talk := command(t, "new", empty); code != 0 {
		t.Errorf("an empty directory: %d %s", code, talk)
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestPackageOfModuleAboveBuilds checks that an example builds whose go.mod
// is the repository's. Go files without any go.mod are no project, and the
// error says how to make one.
func TestPackageOfModuleAboveBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a module, on one goroutine")
	}
	t.Setenv("GOTOOLCHAIN", "local")
	file := filepath.Join(t.TempDir(), "payout.wasm")
	if code, out, talk := command(t, "build", "-o", file, "../../../../examples/wasm/payout"); code != 0 || strings.TrimSpace(out) != file {
		t.Errorf("%d %s %s", code, out, talk)
	}
	bare := t.TempDir()
	if err := os.WriteFile(filepath.Join(bare, "main.go"), []byte("package main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, talk := command(t, "build", bare); code != cli.ExitFailed || !strings.Contains(talk, "no go.mod") || !strings.Contains(talk, "go mod init") {
		t.Errorf("%d %s", code, talk)
	}
}

// TestBuildNeedsAProject checks that a directory without a project is rejected,
// and that the error for a missing tool names it.
func TestBuildNeedsAProject(t *testing.T) {
	if code, _, talk := command(t, "build", t.TempDir()); code != cli.ExitFailed || !strings.Contains(talk, "hostd new") {
		t.Errorf("%d %s", code, talk)
	}
	if code, _, talk := command(t, "build", filepath.Join(t.TempDir(), "absent")); code != cli.ExitFailed || !strings.Contains(talk, "no such file") {
		t.Errorf("%d %s", code, talk)
	}
	dir := made(t)
	t.Setenv("PATH", t.TempDir())
	if code, _, talk := command(t, "build", dir); code != cli.ExitFailed || !strings.Contains(talk, "Install Go (https://go.dev/dl)") {
		t.Errorf("%d %s", code, talk)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Build(ctx, dir, filepath.Join(dir, "x.wasm"), io.Discard); err == nil {
		t.Error("built, although nobody waits for it")
	}
}

// TestNewPrintsReadmeCommands checks that new prints the commands of the README.
func TestNewPrintsReadmeCommands(t *testing.T) {
	files, err := contents("go", entityTemplate, "lamp")
	if err != nil {
		t.Fatal(err)
	}
	text := steps("lamp", files["README.md"])
	for _, want := range []string{"    cd lamp\n", "    hostd build", "    hostd entity send counter"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestTypeScriptTemplates checks that the templates in TypeScript pass the
// compiler's strictest checks, and that the modules built from them pass the
// conformance suite.
func TestTypeScriptTemplates(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles modules, on one goroutine")
	}
	packages, err := filepath.Abs("../../../../examples/wasm/counter-ts/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	tsc := filepath.Join(packages, ".bin/tsc")
	if _, err := os.Stat(tsc); err != nil {
		t.Skip("needs the TypeScript compiler: npm ci in examples/wasm/counter-ts")
	}
	for template, says := range map[string]string{entityTemplate: "from counter;", "workflow": "from counter, raise;"} {
		t.Run(template, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "lamp")
			if code, _, talk := command(t, "new", "--lang", "ts", "--template", template, dir); code != 0 {
				t.Fatal(talk)
			}
			if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), tsc, "--project", dir).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if code, out, talk := command(t, "build", dir); code != 0 || !strings.Contains(talk, says) {
				t.Errorf("%d\n%s%s", code, out, talk)
			}
		})
	}
	for _, args := range [][]string{{"--lang", "rust", "--template", "workflow"}, {"--template", ""}, {"--lang", "ts", "--template", "saga"}} {
		if code, _, talk := command(t, append(append([]string{"new"}, args...), filepath.Join(t.TempDir(), "lamp"))...); code != cli.ExitUsage || !strings.Contains(talk, "is no template for") {
			t.Errorf("%q: %d %s", args, code, talk)
		}
	}
}
