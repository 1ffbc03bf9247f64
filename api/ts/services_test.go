package ts

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// packaged compiles the package as it is published, and returns a directory
// with a script that uses it.
func packaged(t *testing.T) string {
	t.Helper()
	tsc, dir := compiler(t), t.TempDir()
	run(t, ".", tsc, "--project", ".", "--outDir", filepath.Join(dir, "dist"))
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	use, err := os.ReadFile("testdata/services.js")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"services.js": use, "package.json": []byte(`{"type":"module"}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestServices checks, for the whole API, that exactly the idempotent calls are
// retried.
func TestServices(t *testing.T) {
	dir := packaged(t)
	call := func(what string, acts ...func(http.ResponseWriter)) (map[string]any, []asked) {
		t.Helper()
		return playIn(t, dir, "services.js", what, acts...)
	}
	listed := answer(`{"modules":[{"digest":"abc","a member of later":1}]}`)
	if out, _ := call("list", fail(503, "unavailable"), cut, listed); !reflect.DeepEqual(out["digests"], []any{"abc"}) {
		t.Errorf("a call that only reads: %v", out)
	}
	if out, _ := call("activate", fail(503, "unavailable"), answer(`{"revision":"7"}`)); out["revision"] != "7" {
		t.Errorf("a change that no node has taken: %v", out)
	}
	if out, seen := call("activate", cut); out["code"] != "unknown" || len(seen) != 1 {
		t.Errorf("a change that a node may have made: %v after %d attempts", out, len(seen))
	}
	out, seen := call("send", cut, answer(`{"sequence":"3"}`))
	if out["sequence"] != "3" || !reflect.DeepEqual(out["streams"], []any{false, false, true}) {
		t.Errorf("a command: %v", out)
	}
	for _, a := range seen {
		if ageOf(t, a) < 5*time.Second || a.body["commandId"] == "" || a.body["commandId"] != seen[0].body["commandId"] {
			t.Errorf("an attempt is %v, the first was %v", a.body, seen[0].body)
		}
	}
	out, seen = call("subscribe", func(w http.ResponseWriter) { _, _ = w.Write(append(event(1), event(2)...)) },
		func(w http.ResponseWriter) { _, _ = w.Write(append(event(3), envelope(2, `{}`)...)) })
	if !reflect.DeepEqual(out["sequences"], []any{"1", "2", "3"}) || seen[1].body["cursor"] != "c2" || seen[0].body["partialCursors"] != nil {
		t.Errorf("a subscription: %v, asked %v", out, seen)
	}
	t.Run("page", func(t *testing.T) { pageCompiles(t, dir) })
}

// pageCompiles checks that the example of the documentation compiles with the
// published package name, sends JSON payloads and receives them.
func pageCompiles(t *testing.T, dir string) {
	tsc := compiler(t)
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(page), "```ts\n")
	example, _, closed := strings.Cut(example, "```\n")
	if !found || !closed || !strings.Contains(example, `case: "json"`) {
		t.Fatal("the page has no example of a payload")
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("package.json", `{"name":"@hostd/client","type":"module","exports":"./dist/index.js"}`)
	at := strings.Replace(example, `"http://127.0.0.1:7070"`, `process.argv[3]!`, 1)
	write("page.ts", "declare const process: { argv: string[] };\n"+at)
	strict := []string{"--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable", "--noEmitOnError", "page.ts"}
	run(t, dir, tsc, strict...)
	if out, seen := playIn(t, dir, "page.js", "page", answer(`{"json":{"total":3},"sequence":"1"}`)); out["total"] != 3.0 || !reflect.DeepEqual(seen[0].body["json"], map[string]any{"amount": 3.0}) {
		t.Errorf("the example printed %v and sent %v", out, seen[0].body)
	}
	// The documentation says that this does not compile.
	write("page.ts", strings.Replace(example, "toValue({ amount: 3 })", "{ amount: 3 }", 1))
	refused := exec.CommandContext(t.Context(), tsc, strict...)
	refused.Dir = dir
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "amount") {
		t.Errorf("a plain value: %v\n%s", err, out)
	}
}
