package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// project is the empty directory of a user who has a release and no checkout.
type project struct {
	t   *testing.T
	dir string
	r   *release
}

// run runs a tool, which must succeed, and returns its output.
func (p project) run(name string, args ...string) string {
	p.t.Helper()
	out, err := runIn(p.dir, name, args...)
	if err != nil {
		p.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

// hostd runs the released program.
func (p project) hostd(args ...string) string {
	p.t.Helper()
	return p.run(p.r.programs["linux/amd64"], args...)
}

func (p project) write(name, content string) {
	p.t.Helper()
	at := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
		p.t.Fatal(err)
	}
}

// npm installs packages into the project. A name with a slash is a file of the
// release.
func (p project) npm(packages ...string) {
	p.t.Helper()
	p.run("npm", append([]string{"install", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error"}, packages...)...)
}

// block returns the n-th code block of a page in a language.
func block(t *testing.T, page, language string, n int) string {
	t.Helper()
	parts := strings.Split(page, "```"+language+"\n")
	if len(parts) <= n {
		t.Fatalf("the page has fewer than %d blocks of %s", n, language)
	}
	text, _, _ := strings.Cut(parts[n], "```\n")
	return text
}

// checkPackage checks the files of a package, and the links of its page.
func checkPackage(t *testing.T, files map[string][]byte, prefix string, want ...string) {
	t.Helper()
	for _, name := range append(want, "LICENSE", "README.md") {
		if len(files[prefix+name]) == 0 {
			t.Errorf("%s is missing", name)
		}
	}
	if page := files[prefix+"README.md"]; bytes.Contains(page, []byte("](../")) || !bytes.Contains(page, []byte("/blob/v"+testVersion+"/docs/guide/clients.md)")) {
		t.Errorf("links leave the package:\n%s", page)
	}
}

// checkNPM installs the npm packages into an empty project, builds the entity
// of the SDK's page from them, and calls it with the client's example.
func checkNPM(t *testing.T, r *release, all map[string][]byte) {
	client, guest := "hostd-client-"+testVersion+".tgz", "hostd-guest-"+testVersion+".tgz"
	checkPackage(t, unpacked(t, all[client]), "package/", "dist/index.js", "dist/index.d.ts", "src/index.ts")
	checkPackage(t, unpacked(t, all[guest]), "package/", "src/index.ts")
	p := project{t, t.TempDir(), r}
	p.write("package.json", `{"name": "counter", "private": true, "type": "module"}`)
	p.npm(filepath.Join(r.out, client), filepath.Join(r.out, guest), "quickjs-wasi@3.6.2", "typescript@5.9.3", "@types/node@20")
	installed := func(name string) string {
		text, err := os.ReadFile(filepath.Join(p.dir, "node_modules/@hostd", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, name := range []string{"client", "guest"} {
		var about struct {
			Version, License string
			Private          bool
		}
		if err := json.Unmarshal([]byte(installed(name+"/package.json")), &about); err != nil || about.Version != testVersion || about.License != "Apache-2.0" || about.Private {
			t.Errorf("%s: %+v, %v", name, about, err)
		}
	}
	page := installed("guest/README.md")
	p.write("src/index.ts", block(t, page, "ts", 1))
	p.write("cases.yaml", block(t, page, "yaml", 1))
	p.run("node_modules/.bin/tsc", "--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext", "--allowImportingTsExtensions", "src/index.ts")
	p.hostd("build", "-o", "counter.wasm")
	if got := p.hostd("test", "counter.wasm"); strings.Count(got, "ok  ") != 2 {
		t.Errorf("hostd test: %s", got)
	}
	api := p.dev("--module", "counter.wasm")
	p.write("use.ts", strings.ReplaceAll(block(t, installed("client/README.md"), "ts", 1), "http://127.0.0.1:7070", api))
	p.run("node_modules/.bin/tsc", "--strict", "--target", "es2022", "--module", "nodenext", "use.ts")
	if got := p.run("node", "use.js"); got != `{"total":3}`+"\n" {
		t.Errorf("the client prints %q", got)
	}
	// Check that the build used the package and not the copy in the program.
	p.write("node_modules/@hostd/guest/src/index.ts", "fn broken(")
	if out, err := runIn(p.dir, r.programs["linux/amd64"], "build", "-o", "counter.wasm"); err == nil || !strings.Contains(out, "@hostd/guest/src/index.ts") {
		t.Errorf("the installed SDK is not used: %v\n%s", err, out)
	}
}

// checkCrate unpacks the crate beside an empty project, and builds the entity of
// its page with hostd and with cargo.
func checkCrate(t *testing.T, r *release, all map[string][]byte) {
	root := "hostd-" + testVersion + "/"
	files := unpacked(t, all["hostd-"+testVersion+".crate"])
	checkPackage(t, files, root, "Cargo.toml", "src/lib.rs")
	if about := string(files[root+"Cargo.toml"]); !strings.Contains(about, "\nversion = \""+testVersion+"\"\n") || strings.Contains(about, "publish = false") {
		t.Errorf("Cargo.toml:\n%s", about)
	}
	p := project{t, t.TempDir(), r}
	for name, content := range files {
		p.write(strings.Replace(name, root, "hostd-sdk/", 1), string(content))
	}
	page := string(files[root+"README.md"])
	p.write("src/lib.rs", block(t, page, "rust", 1))
	p.write("cases.yaml", block(t, page, "yaml", 1))
	p.write("Cargo.toml", "[package]\nname = \"counter\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[lib]\ncrate-type = [\"cdylib\"]\n\n[dependencies]\nhostd = { path = \"hostd-sdk\" }\n\n[workspace]\n")
	p.run("cargo", "check", "--offline", "--quiet")
	out, err := runIn(p.dir, r.programs["linux/amd64"], "build", "-o", "counter.wasm")
	if err != nil && strings.Contains(out, ": not installed\n") {
		t.Skip(out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := p.hostd("test", "counter.wasm"); strings.Count(got, "ok  ") != 2 {
		t.Errorf("hostd test: %s", got)
	}
}

// dev starts a node and returns the URL of its API.
func (p project) dev(args ...string) string {
	p.t.Helper()
	ports := filepath.Join(p.t.TempDir(), "ports.json")
	cmd := exec.Command(p.r.programs["linux/amd64"], append([]string{"dev", "--listen", "127.0.0.1:0", "--ports-file", ports}, args...)...)
	var talk bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, &talk, &talk
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit code is ignored
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the process may have ended
		<-ended
		if p.t.Failed() {
			p.t.Logf("hostd dev:\n%s", talk.Bytes())
		}
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(ports)
		if err == nil {
			var file struct{ Nodes []struct{ API string } }
			if err := json.Unmarshal(text, &file); err != nil {
				p.t.Fatal(err)
			}
			return file.Nodes[0].API
		}
		select {
		case <-ended:
			p.t.Fatal("hostd dev ended")
		default:
		}
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			p.t.Fatalf("hostd dev is not ready: %v", err)
		}
	}
}
