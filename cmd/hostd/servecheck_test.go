package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

func TestServeCheckReportsMissingRequirements(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(dir, "hostd.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data := "data-dir: " + filepath.Join(dir, "data") + "\n"
	t.Setenv(configVariable, file) // read like --config
	for name, tt := range map[string]struct {
		config string
		code   int
		says   string
	}{
		"fine":         {data + "listen: 127.0.0.1:0\n", 0, "listen: ok"},
		"taken port":   {data + "listen: " + taken.Addr().String() + "\n", cli.ExitFailed, "address already in use"},
		"missing file": {data + "listen: 127.0.0.1:0\nmodule-trust-file: /nowhere\n", cli.ExitFailed, "module-trust-file: open /nowhere"},
		"directory":    {"data-dir: " + file + "/x\nlisten: 127.0.0.1:0\n", cli.ExitFailed, "not a directory"},
		"unknown key":  {"no-such-key: 1\n", cli.ExitUsage, "no-such-key"},
	} {
		write(tt.config)
		got := hostd(t, "serve", "--check")
		if got.code != tt.code || !strings.Contains(got.out+got.err, tt.says) {
			t.Errorf("%s: %+v, want code %d and %q", name, got, tt.code, tt.says)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Error("a check made the data directory")
	}
	write(data + "listen: 127.0.0.1:0\n")
	t.Setenv("HOSTD_DATADIR", "/x")
	if got := hostd(t, "serve", "--check"); got.code != cli.ExitFailed || !strings.Contains(got.out, "did you mean HOSTD_DATA_DIR?") {
		t.Errorf("an unknown variable: %+v", got)
	}
	if got := hostd(t, "version", "-o", "json"); got.code != 0 || !strings.Contains(got.err, "warning: ") || !strings.Contains(got.out, `"commit"`) && !strings.Contains(got.out, `"dirty"`) {
		t.Errorf("other commands warn: %+v", got)
	}
}
