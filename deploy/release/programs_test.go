package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestProgramsAreChecked builds a small program for each pair. The check that
// every release makes must accept it, and reject it as any other pair.
func TestProgramsAreChecked(t *testing.T) {
	source := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module small\n", "main.go": "package main\n\nfunc main() { println(\"ready\") }\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := func(pair string, flags ...string) string {
		t.Helper()
		system, processor, _ := strings.Cut(pair, "/")
		to := filepath.Join(source, system+"-"+processor)
		cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", to, ".")...)
		cmd.Dir, cmd.Env = source, append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", pair, err, out)
		}
		return to
	}
	r := &release{root: source}
	for _, pair := range pairs {
		program := build(pair, "-trimpath", "-ldflags", "-s -w")
		for _, as := range pairs {
			err := r.checkProgram(as, program)
			switch sameSystem := strings.Split(as, "/")[0] == strings.Split(pair, "/")[0]; {
			case as == pair && err != nil:
				t.Errorf("%s is rejected: %v", pair, err)
			case as != pair && err == nil:
				t.Errorf("%s passes as %s", pair, as)
			case as != pair && sameSystem && !errors.Is(err, errProcessor):
				t.Errorf("%s as %s: %v", pair, as, err)
			}
		}
	}
	if err := r.checkProgram(pairs[0], build(pairs[0])); err == nil || !strings.Contains(err.Error(), "a path of the building machine") {
		t.Errorf("a program built without -trimpath: %v", err)
	}
}

// TestUnsignedMacProgramIsRejected removes the code signature's load command,
// which the linker adds on arm64, and names another platform.
func TestUnsignedMacProgramIsRejected(t *testing.T) {
	source := t.TempDir()
	program := filepath.Join(source, "small")
	if err := errors.Join(os.WriteFile(filepath.Join(source, "go.mod"), []byte("module small\n"), 0o644),
		os.WriteFile(filepath.Join(source, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, ".")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkMachO(content, "arm64"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(load []byte) bool
		want   string
	}{
		{func(load []byte) bool {
			found := load[0] == lcCodeSignature
			if found {
				load[0] = 0x26 // LC_FUNCTION_STARTS, which has the same form
			}
			return found
		}, "no code signature"},
		{func(load []byte) bool {
			found := load[0] == lcBuildVersion
			if found {
				load[8] = 2 // iOS
			}
			return found
		}, "platform 2"},
	} {
		changed := append([]byte(nil), content...)
		const header = 32
		found := false
		for at, n := header, int(changed[16]); n > 0 && !found; n-- {
			size := int(changed[at+4]) | int(changed[at+5])<<8
			found = c.change(changed[at : at+size])
			at += size
		}
		if !found {
			t.Fatalf("%s: no such load command", c.want)
		}
		if err := checkMachO(changed, "arm64"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
