package testkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needRoot skips a test in short mode, without root, or if a tool is missing,
// and reports the reason.
func needRoot(t testing.TB, what string, tools ...string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("%s is not run in short mode", what)
	}
	if os.Geteuid() != 0 {
		t.Skipf("%s needs root, to mount a file system", what)
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s needs %s: %v", what, tool, err)
		}
	}
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// PowerDisk is an ext4 file system in a loop-mounted file. A test can cut its
// power, which loses all data that was not synced.
type PowerDisk struct {
	t       testing.TB
	device  string
	mount   string
	mounted bool
}

// NewPowerDisk creates a file system of the given size and mounts it until the
// end of the test. If that is not possible it skips the test and reports the
// reason. Create nodes on it afterwards, so that the nodes end before the disk
// is unmounted.
func NewPowerDisk(t testing.TB, bytes int64) *PowerDisk {
	t.Helper()
	const what = "power loss on a real file system"
	needRoot(t, what, "mkfs.ext4", "losetup", "mount", "umount")
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, bytes); err != nil {
		t.Fatal(err)
	}
	if err := command("mkfs.ext4", "-q", "-F", image); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).Output()
	if err != nil {
		t.Skipf("%s needs a loop device: %v", what, err)
	}
	d := &PowerDisk{t: t, device: strings.TrimSpace(string(out)), mount: filepath.Join(dir, "mount")}
	t.Cleanup(func() {
		if d.mounted {
			if err := command("umount", "--lazy", d.mount); err != nil {
				t.Error(err)
			}
		}
		if err := command("losetup", "--detach", d.device); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(d.mount, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := command("mount", d.device, d.mount); err != nil {
		t.Skipf("%s needs to mount one: %v", what, err)
	}
	d.mounted = true
	return d
}

// Dir returns the mount point.
func (d *PowerDisk) Dir() string { return d.mount }

// Cut shuts the file system down without writing back its journal or its page
// cache. Later writes fail.
func (d *PowerDisk) Cut() {
	d.t.Helper()
	const (
		shutdown   = 0x8004587d // EXT4_IOC_SHUTDOWN
		noLogFlush = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	)
	f, err := os.Open(d.mount)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush); err != nil {
		d.t.Skipf("power loss on a real file system needs the shutdown call of ext4: %v", err)
	}
}

// Restore mounts the file system again, as after a power cut. All files on it
// must be closed.
func (d *PowerDisk) Restore() {
	d.t.Helper()
	if err := command("umount", d.mount); err != nil {
		d.t.Fatal(err)
	}
	d.mounted = false
	if err := command("mount", d.device, d.mount); err != nil {
		d.t.Fatal(err)
	}
	d.mounted = true
}

// SmallDisk is a tmpfs that a test can fill.
type SmallDisk struct {
	t     testing.TB
	mount string
}

// NewSmallDisk mounts a SmallDisk of the given size until the end of the test.
// If that is not possible it skips the test and reports the reason.
func NewSmallDisk(t testing.TB, bytes int64) *SmallDisk {
	t.Helper()
	const what = "a full disk"
	needRoot(t, what, "mount", "umount")
	d := &SmallDisk{t: t, mount: filepath.Join(t.TempDir(), "mount")}
	if err := os.Mkdir(d.mount, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", bytes), "tmpfs", d.mount); err != nil {
		t.Skipf("%s needs to mount one: %v", what, err)
	}
	t.Cleanup(func() {
		if err := command("umount", "--lazy", d.mount); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Dir returns the mount point.
func (d *SmallDisk) Dir() string { return d.mount }

// Resize changes the size of the file system. If more than the new size is
// used, no space is left.
func (d *SmallDisk) Resize(bytes int64) {
	d.t.Helper()
	if err := command("mount", "-o", fmt.Sprintf("remount,size=%d", bytes), d.mount); err != nil {
		d.t.Fatal(err)
	}
}

// Free returns the free space in bytes.
func (d *SmallDisk) Free() int64 {
	d.t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(d.mount, &s); err != nil {
		d.t.Fatal(err)
	}
	return int64(s.Bavail) * s.Bsize
}

// FillAtOnce allocates all free space for a file with the given name.
func (d *SmallDisk) FillAtOnce(name string) {
	d.t.Helper()
	f, err := os.Create(filepath.Join(d.mount, name))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for size := int64(0); d.Free() > 0; {
		// Other processes may have taken some of the space meanwhile. The loop then
		// allocates the rest.
		err := unix.Fallocate(int(f.Fd()), 0, size, d.Free())
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			d.t.Fatal(err)
		}
		if s, err := f.Stat(); err != nil {
			d.t.Fatal(err)
		} else {
			size = s.Size()
		}
	}
}

// Fill writes a file with the given name until left bytes are free.
func (d *SmallDisk) Fill(name string, left int64) {
	d.t.Helper()
	f, err := os.Create(filepath.Join(d.mount, name))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 64<<10)
	for d.Free() > left {
		n := min(int64(len(chunk)), d.Free()-left)
		if _, err := f.Write(chunk[:n]); err != nil {
			if left == 0 {
				return
			}
			d.t.Fatal(err)
		}
	}
}
