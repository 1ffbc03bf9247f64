package guest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCompilerIsAtLeastAsNiceAsItsNode: a node that runs at a low priority must
// be able to compile modules without the right to raise priorities.
func TestCompilerIsAtLeastAsNiceAsItsNode(t *testing.T) {
	const child, niceness = "HOSTD_TEST_LIMIT_CHILD", 15
	if os.Getenv(child) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestCompilerIsAtLeastAsNiceAsItsNode$")
		c.Env = append(os.Environ(), child+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, niceness); err != nil {
		t.Fatal(err)
	}
	if err := limitChild(time.Minute); err != nil {
		t.Fatal(err)
	}
	if priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || 20-priority < niceness {
		t.Errorf("niceness %d, want at least %d: %v", 20-priority, niceness, err)
	}
}
