package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sandboxVariable is set in a process that becomes a container. Its value is
	// the file that describes the sandbox.
	sandboxVariable = "HOSTD_TEST_SANDBOX"
	// insideVariable is set in the test process that runs in network and mount
	// namespaces of its own.
	insideVariable = "HOSTD_TEST_INSIDE"
	// imageVariable holds the root directory of an image that is already built.
	imageVariable = "HOSTD_TEST_IMAGE"
)

var full = flag.Bool("full", false, "run the tests of pods in full")

func TestMain(m *testing.M) {
	if file := os.Getenv(sandboxVariable); file != "" {
		fmt.Fprintln(os.Stderr, "sandbox:", enterSandbox(file))
		os.Exit(1)
	}
	code := m.Run()
	removeImage()
	os.Exit(code)
}

// sandbox describes the namespaces of a container and the process in them.
type sandbox struct {
	Root      string // is prepared by prepareRoot
	Binds     []bind
	Argv, Env []string
	UID, GID  int
	Address   string // IP address with the length of its prefix
	Hostname  string
}

type bind struct {
	Source, Target string
	ReadOnly       bool
}

// devices are the devices that every container has.
var devices = []string{"null", "zero", "random", "urandom"}

// prepareRoot makes the directories and files of a root file system, without
// the contents of mounts.
func (s *sandbox) prepareRoot(resolver string) error {
	dirs := []string{"proc", "dev", "etc", "usr/bin"}
	for _, b := range s.Binds {
		dirs = append(dirs, strings.TrimPrefix(b.Target, "/"))
	}
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(s.Root, d), 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{
		"etc/resolv.conf": resolver,
		"etc/hosts":       "127.0.0.1 localhost\n",
		"etc/passwd":      fmt.Sprintf("hostd:x:%d:%d:hostd:/var/lib/hostd:/\n", s.UID, s.GID),
	}
	for _, d := range devices {
		files["dev/"+d] = ""
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(s.Root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// enterSandbox makes this process the first process of a container. It returns
// only if that fails.
func enterSandbox(file string) error {
	runtime.LockOSThread()
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var s sandbox
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	attached := os.NewFile(3, "attached")
	if _, err := io.ReadFull(attached, make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the network: %w", err)
	}
	attached.Close()
	for _, args := range [][]string{{"addr", "add", s.Address, "dev", "eth0"}, {"link", "set", "eth0", "up"}, {"link", "set", "lo", "up"}} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	if err := s.mount(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := errors.Join(syscall.Sethostname([]byte(s.Hostname)), syscall.Setgroups([]int{s.GID}), syscall.Setgid(s.GID), syscall.Setuid(s.UID)); err != nil {
		return err
	}
	// Changing the user clears this setting, so it is set afterwards.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", s.Argv[0], syscall.Exec(s.Argv[0], s.Argv, s.Env))
}

// mount makes the container's mounts and its read-only root.
func (s *sandbox) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	binds := append([]bind{{Source: s.Root, Target: "/", ReadOnly: true}}, s.Binds...)
	for _, d := range devices {
		binds = append(binds, bind{Source: "/dev/" + d, Target: "/dev/" + d})
	}
	for _, b := range binds {
		if err := unix.Mount(b.Source, filepath.Join(s.Root, b.Target), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", b.Target, err)
		}
	}
	if err := unix.Mount("proc", filepath.Join(s.Root, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := os.Chdir(s.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the host's files: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for _, b := range binds {
		if b.ReadOnly {
			if err := unix.Mount("", b.Target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
				return fmt.Errorf("make %s read-only: %w", b.Target, err)
			}
		}
	}
	return nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// inside runs the test again in its own network and mount namespaces, and
// reports whether this process is that run. All processes in these namespaces
// end with it.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make network namespaces")
	}
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: Debian has it in iproute2 and util-linux", tool)
		}
	}
	t.Parallel() // tests run in parallel, because the pods of different tests have separate networks
	built := newImage(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limit := 20 * time.Minute
	if end, ok := t.Deadline(); ok {
		limit = min(limit, time.Until(end)-10*time.Second)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+limit.String(), fmt.Sprintf("-full=%v", *full))
	cmd.Env = append(os.Environ(), insideVariable+"=1", imageVariable+"="+built.root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	t.Logf("inside:\n%s", out)
	if err != nil {
		t.Fatalf("in namespaces: %v", err)
	}
	return false
}
