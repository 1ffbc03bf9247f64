package testkit

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// Terminal opens a pseudo-terminal: screen is for the program, keys is for the
// test to type and read. It skips the test if there are no pseudo-terminals.
func Terminal(t testing.TB) (screen, keys *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs terminals: %v", err)
	}
	t.Cleanup(func() { keys.Close() })
	var number, unlocked int32
	for request, value := range map[uintptr]*int32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &unlocked} {
		if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, keys.Fd(), request, uintptr(unsafe.Pointer(value))); no != 0 {
			t.Skipf("needs terminals: %v", no)
		}
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs terminals: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	return screen, keys
}
