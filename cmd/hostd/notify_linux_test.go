package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServeNotifiesServiceManager runs a real process with the socket of a
// service manager: it notifies the manager when it serves, that it is alive,
// and that it stops, and it survives a reload.
func TestServeNotifiesServiceManager(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stderr lockedBuffer
	node := exec.Command(program, "serve", "--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--shards", "2")
	node.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=200000")
	node.Stderr = &stderr
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Process.Kill() }()
	wait := func(state string) {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		for buf := make([]byte, 1024); ; {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("waiting for %s: %v\n%s", state, err, stderr.String())
			}
			if strings.HasPrefix(string(buf[:n]), state) {
				return
			}
		}
	}
	wait("READY=1")
	if err := node.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		wait("WATCHDOG=1")
	}
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wait("STOPPING=1")
	if err := node.Wait(); err != nil {
		t.Errorf("%v\n%s", err, stderr.String())
	}
	if !strings.Contains(stderr.String(), "SIGHUP") {
		t.Errorf("the reload is not logged:\n%s", stderr.String())
	}
}
