package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// instead lists, by their prefix, the commands of the page that this test
// cannot run unchanged. Each has a replacement, which may be empty, and the
// reason.
var instead = []struct{ begins, run, reason string }{
	{"sudo apt install ", "dpkg-deb --info hostd_9.8.7-1_amd64.deb", "installing needs root: the package is read, and checkRoots installs it"},
	{"sudo dnf install ", "test -s hostd-9.8.7-1.x86_64.rpm", "installing needs root and dnf"},
	{"sudo -u hostd hostd serve --check ", "./hostd_9.8.7_linux_amd64/hostd serve --check --listen 127.0.0.1:0 --data-dir data", "the user and the configuration belong to an installed package"},
	{"sudo systemctl ", "", "needs systemd: TestServeNotifiesServiceManager runs a node under a notify socket"},
	{"journalctl ", "", "needs systemd"},
	{"hostd cluster status", "./hostd_9.8.7_linux_amd64/hostd cluster status --help", "no node runs here: tests of cmd/hostd run it"},
	{"hostd node drain ", "./hostd_9.8.7_linux_amd64/hostd node drain --help", "no node runs here: tests of cmd/hostd run it"},
	{"hostd version --nodes", "./hostd_9.8.7_linux_amd64/hostd version --help", "no node runs here: tests of cmd/hostd run it"},
	{"brew install ", "test -s hostd.rb", "needs Homebrew: checkFormula installs the formula's archive"},
	{"podman load ", "test -s hostd_9.8.7_image.oci.tar.gz", "needs podman: checkImage reads the layout"},
	{"docker compose ", "", "needs an engine: TestCompose in deploy/helm runs the same commands"},
	{"sudo apt remove ", "", "needs root: checkRoots removes the package"},
	{"make release ", "", "this test has run the same program"},
}

// checkPage runs every command of the install page in the directory of a
// release.
func checkPage(t *testing.T, dir string) {
	text, err := os.ReadFile("../../docs/operating/install.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for line := range strings.Lines(string(text)) {
		line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !ok {
			continue
		}
		run := strings.ReplaceAll(line, "0.2.0", testVersion)
		for _, other := range instead {
			if strings.HasPrefix(line, other.begins) {
				t.Logf("%s: not run as it is: %s", line, other.reason)
				run = other.run
			}
		}
		if run == "" {
			continue
		}
		cmd := exec.Command("sh", "-c", run)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", run, err, out)
		}
		ran++
	}
	if ran < 8 {
		t.Errorf("%d commands ran: the page has more", ran)
	}
}
