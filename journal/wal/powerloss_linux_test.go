package wal

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostd/hostd/journal/disk"
)

var powerCuts = flag.Int("wal.powercuts", 20, "how often the power of a real file system is cut")

// loopDisk is an ext4 file system in a file, whose power can be cut.
type loopDisk struct {
	device, mount string
	mounted       bool
}

func newLoopDisk(t *testing.T) *loopDisk {
	t.Helper()
	if testing.Short() {
		t.Skip("power loss on a real file system is not run in short mode")
	}
	if os.Geteuid() != 0 {
		t.Skip("power loss on a real file system needs root, to mount one")
	}
	for _, tool := range []string{"mkfs.ext4", "losetup", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("power loss on a real file system needs %s: %v", tool, err)
		}
	}
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).Output()
	if err != nil {
		t.Skipf("power loss on a real file system needs a loop device: %v", err)
	}
	d := &loopDisk{device: strings.TrimSpace(string(out)), mount: filepath.Join(dir, "mount")}
	t.Cleanup(func() {
		if d.mounted {
			d.run(t, "umount", "--lazy", d.mount)
		}
		d.run(t, "losetup", "--detach", d.device)
	})
	if err := os.Mkdir(d.mount, 0o700); err != nil {
		t.Fatal(err)
	}
	d.on(t)
	return d
}

func (d *loopDisk) run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %v: %v: %s", name, args, err, out)
	}
}

func (d *loopDisk) on(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("mount", d.device, d.mount).CombinedOutput(); err != nil {
		if !d.mounted {
			t.Skipf("power loss on a real file system needs to mount one: %v: %s", err, out)
		}
		t.Fatalf("mount: %v: %s", err, out)
	}
	d.mounted = true
}

// cut stops the file system without writing back its journal or its page cache.
func (d *loopDisk) cut(t *testing.T) {
	t.Helper()
	const (
		shutdown   = 0x8004587d // EXT4_IOC_SHUTDOWN
		noLogFlush = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	)
	f, err := os.Open(d.mount)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush); err != nil {
		t.Skipf("power loss on a real file system needs the shutdown call of ext4: %v", err)
	}
}

// restart mounts the file system again, which replays its journal. All files on
// it must be closed.
func (d *loopDisk) restart(t *testing.T) {
	t.Helper()
	d.run(t, "umount", d.mount)
	d.on(t)
}

// powerCycles repeatedly appends, syncs and cuts the power, and returns the
// number of lost unsynced records. It returns an error if synced records were
// lost.
func powerCycles(t *testing.T, fsys disk.FS, seed uint64, cycles int) (lost int, err error) {
	d := newLoopDisk(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	opts := Options{SegmentBytes: 256 << 10}
	var appended []string
	synced, first := 0, 0
	for range cycles {
		log, err := Open(fsys, filepath.Join(d.mount, "wal"), opts)
		if err != nil {
			return lost, err
		}
		got := replayed(t, log)
		released := first
		for released < len(appended) && (len(got) == 0 || appended[released] != got[0]) {
			released++
		}
		if len(got) < synced-released || !slices.Equal(got, appended[released:][:len(got)]) {
			return lost, fmt.Errorf("%d of %d synced records replayed", len(got), synced-released)
		}
		lost += len(appended) - released - len(got)
		appended, first = appended[:released+len(got)], released
		synced = len(appended)
		for turn := range 20 + rng.IntN(60) {
			for range 1 + rng.IntN(5) {
				word := fmt.Sprintf("record-%d-%d", len(appended), rng.Uint32())
				if _, err := log.Append(2, []byte(word), []byte(strings.Repeat(".", rng.IntN(3000)+1))); err != nil {
					t.Fatal(err)
				}
				appended = append(appended, word)
			}
			switch {
			case turn%7 == 6:
				err = log.Flush()
			default:
				_, err = log.Sync()
				synced = len(appended)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if segments := log.Segments(); len(segments) > 3 {
			if _, err := log.Release(Position{segments[len(segments)-2].Number, 0}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := log.Append(2, []byte("unsynced."), make([]byte, rng.IntN(30000))); err != nil {
			t.Fatal(err)
		}
		appended = append(appended, "unsynced")
		if err := log.Flush(); err != nil {
			t.Fatal(err)
		}
		d.cut(t)
		log.closeFiles()
		d.restart(t)
	}
	return lost, nil
}

// TestPowerLoss repeatedly cuts the power of a real file system under the log.
// No synced record may be lost.
func TestPowerLoss(t *testing.T) {
	cycles := *powerCuts
	lost, err := powerCycles(t, disk.OS{}, 1, cycles)
	if err != nil {
		t.Fatal(err)
	}
	if lost == 0 {
		t.Errorf("%d power cuts lost nothing, not even what was not synced", cycles)
	}
	t.Logf("%d power cuts, %d unsynced records lost", cycles, lost)
}

// TestPowerLossNoticesMissingSync shows that the power is really cut: a log
// whose files are not synced loses records.
func TestPowerLossNoticesMissingSync(t *testing.T) {
	_, err := powerCycles(t, unsyncedFS{disk.OS{}}, 2, 3)
	var damage *DamageError
	if err == nil || errors.As(err, &damage) && damage.Err != nil {
		t.Errorf("nothing was synced, and the outcome is %v", err)
	}
	t.Logf("noticed: %v", err)
}
