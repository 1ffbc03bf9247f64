package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// checkProfiles checks that a profile is written completely to the named file,
// and that a failed profile leaves no file.
func checkProfiles(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.pb.gz")
	if got := hostd(t, "node", "profile", "n1", "--type", "heap", "-o", path); got.code != cli.ExitDone || !strings.Contains(got.err, "go tool pprof "+path) {
		t.Errorf("profile: %+v", got)
	}
	if content, err := os.ReadFile(path); err != nil || len(content) < 100 || string(content[:2]) != "\x1f\x8b" {
		t.Errorf("the profile has %d bytes, %v", len(content), err)
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		code int
		said string
		args []string
	}{
		{cli.ExitUsage, "cpu", []string{"n1", "--type", "everything"}},
		{cli.ExitUsage, "5m0s", []string{"n1", "--duration", "301s"}},
		{cli.ExitFailed, "no such node", []string{"nobody", "--type", "heap"}},
	} {
		if got := hostd(t, append([]string{"node", "profile", "-o", none}, c.args...)...); got.code != c.code || !strings.Contains(got.err, c.said) {
			t.Errorf("profile %v: %+v", c.args, got)
		}
	}
	if _, err := os.Stat(none); !os.IsNotExist(err) {
		t.Errorf("a profile that was not taken left a file: %v", err)
	}
}

// checkGuestProfiles checks that the tools can read the file, even if no guest
// ran.
func checkGuestProfiles(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g.pb.gz")
	if got := hostd(t, "module", "profile", "counter", "--duration", "1s", "-o", path); got.code != cli.ExitDone || !strings.Contains(got.err, "units of fuel") {
		t.Errorf("profile of guests: %+v", got)
	}
	if out, err := exec.Command("go", "tool", "pprof", "-top", path).CombinedOutput(); err != nil || !strings.Contains(string(out), "counter") {
		t.Errorf("the profile of guests is read as %s, %v", out, err)
	}
	if got := hostd(t, "module", "profile", "nobody", "--duration", "1s", "-o", path); got.code != cli.ExitFailed || !strings.Contains(got.err, "not_found") {
		t.Errorf("profile of a type that there is not: %+v", got)
	}
}
