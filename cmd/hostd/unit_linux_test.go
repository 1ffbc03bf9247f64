package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/config"
)

const unitFile = "../../deploy/systemd/hostd.service"

// The unit's variables are existing keys, and its command exists.
func TestUnitUsesExistingKeys(t *testing.T) {
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{configVariable: true}
	shown := config.Default()
	for _, f := range shown.Fields() {
		known[config.EnvName(f.Name)] = true
	}
	set := regexp.MustCompile(`(?m)^Environment=([A-Z_]+)=`).FindAllStringSubmatch(string(text), -1)
	if len(set) == 0 {
		t.Error("the unit sets no variable")
	}
	for _, m := range set {
		if !known[m[1]] {
			t.Errorf("%s is no variable of a node", m[1])
		}
	}
	for _, want := range []string{"Type=notify\n", "ExecStart=/usr/bin/hostd serve\n", "ExecReload=/bin/kill -HUP $MAINPID\n", "WatchdogSec=", "StateDirectory=hostd\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(string(text), "MemoryDenyWriteExecute=") {
		t.Error("the node writes code and runs it: MemoryDenyWriteExecute cannot be on")
	}
}

func TestUnitIsHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze here: Debian has it in the package systemd")
	}
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager", unitFile).CombinedOutput()
	if err != nil {
		t.Errorf("the exposure is above 2.5: %v\n%s", err, out)
	}
}

func TestLicensesAndCommandsArePrinted(t *testing.T) {
	if got := hostd(t, "licenses"); got.code != 0 || !strings.Contains(got.out, "github.com/tetratelabs/wazero") || !strings.Contains(got.out, "preact") {
		t.Errorf("licenses: code %d, %d bytes, %s", got.code, len(got.out), got.err)
	}
	if got := hostd(t, "commands"); got.code != 0 || !strings.Contains(got.out, `"deadletter`) || strings.Contains(got.out, `"Use": "commands"`) {
		t.Errorf("commands: code %d, %d bytes, %s", got.code, len(got.out), got.err)
	}
}
