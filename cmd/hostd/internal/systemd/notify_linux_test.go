package systemd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestNotificationToAFullSocketFails fills the socket of a manager that
// does not read: the notification fails instead of waiting for it.
func TestNotificationToAFullSocketFails(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	n := New(func(name string) string { return map[string]string{"NOTIFY_SOCKET": socket}[name] })
	for range 1 << 16 {
		if err = n.Ready(); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a full socket gives %v", err)
	}
}
