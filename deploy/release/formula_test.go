package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkFormula installs the archive as the formula says: testdata/brew.rb has the
// parts of Homebrew that it uses.
func checkFormula(t *testing.T, all map[string][]byte) {
	archive := "hostd_" + testVersion + "_linux_amd64.tar.gz"
	sum := fmt.Sprintf("%x", sha256.Sum256(all[archive]))
	text := string(all["hostd.rb"])
	for _, want := range []string{`url "https://github.com/hostd/hostd/releases/download/v` + testVersion + "/" + archive + `"`, `sha256 "` + sum + `"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the formula lacks %s:\n%s", want, text)
		}
	}
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("needs ruby: Debian has it in the package ruby")
	}
	dir := t.TempDir()
	for name, content := range unpacked(t, all[archive]) {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out, prefix := installed(t, text, "linux", "intel", filepath.Join(dir, strings.TrimSuffix(archive, ".tar.gz")))
	if !strings.Contains(out, archive+"\n"+sum+"\n") {
		t.Errorf("the formula downloads\n%s", out)
	}
	checkVersion(t, filepath.Join(prefix, "bin/hostd"))
	for _, name := range []string{"share/man/man1/hostd-serve.1", "etc/bash_completion.d/hostd", "share/zsh/site-functions/_hostd", "share/fish/vendor_completions.d/hostd.fish", "share/doc/hostd/THIRD_PARTY_NOTICES.txt"} {
		if _, err := os.Stat(filepath.Join(prefix, name)); err != nil {
			t.Error(err)
		}
	}
}

// installed runs a formula's install, test and service in a folder.
func installed(t *testing.T, formula, system, processor, dir string) (out, prefix string) {
	t.Helper()
	path, prefix := filepath.Join(t.TempDir(), "hostd.rb"), t.TempDir()
	if err := os.WriteFile(path, []byte(formula), 0o644); err != nil {
		t.Fatal(err)
	}
	brew, err := filepath.Abs("testdata/brew.rb")
	if err != nil {
		t.Fatal(err)
	}
	out, err = runIn(dir, "ruby", brew, path, system, processor, prefix)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out, prefix
}

// TestFormulaNamesTheArchiveOfEachMachine checks which archive a machine gets.
func TestFormulaNamesTheArchiveOfEachMachine(t *testing.T) {
	r := &release{out: t.TempDir(), version: testVersion, pairs: pairs, downloads: "https://example.com/hostd"}
	sums := map[string]string{}
	for _, pair := range pairs {
		name := "hostd_" + testVersion + "_" + strings.ReplaceAll(pair, "/", "_") + ".tar.gz"
		if err := r.write(name, []byte(pair)); err != nil {
			t.Fatal(err)
		}
		sums[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(pair)))
	}
	if err := r.formula(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.out, "hostd.rb"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`url "https://example.com/hostd/(\S+)"\n +sha256 "(\S+)"`).FindAllStringSubmatch(string(text), -1)
	if len(found) != 4 {
		t.Fatalf("%d archives:\n%s", len(found), text)
	}
	for _, f := range found {
		if sums[f[1]] != f[2] {
			t.Errorf("%s has the sum %s", f[1], f[2])
		}
	}
	if _, err := exec.LookPath("ruby"); err != nil {
		t.Skip("needs ruby: Debian has it in the package ruby")
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"hostd": "#!/bin/sh\necho " + testVersion + "\n", "THIRD_PARTY_NOTICES.txt": "", "man/hostd.1": "", "completions/hostd.bash": "", "completions/_hostd": "", "completions/hostd.fish": ""} {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for machine, archive := range map[[2]string]string{
		{"macos", "arm"}: "darwin_arm64", {"macos", "intel"}: "darwin_amd64", {"linux", "arm"}: "linux_arm64", {"linux", "intel"}: "linux_amd64",
	} {
		out, prefix := installed(t, string(text), machine[0], machine[1], dir)
		name := "hostd_" + testVersion + "_" + archive + ".tar.gz"
		if want := "https://example.com/hostd/" + name + "\n" + sums[name] + "\n" + prefix + "/bin/hostd serve --data-dir " + prefix + "/var/hostd\n"; out != want {
			t.Errorf("%v:\n%s\nwant\n%s", machine, out, want)
		}
	}
}
