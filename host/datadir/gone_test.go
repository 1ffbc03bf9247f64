package datadir

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/hostd/hostd/host/config"
)

// A node that writes nothing notices when its directory is removed, moved or
// replaced.
func TestRemovedDirectoryIsDetected(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open files cannot be removed")
	}
	for what, change := range map[string]func(dir string) error{
		"removed":       os.RemoveAll,
		"moved":         func(dir string) error { return os.Rename(dir, dir+"2") },
		"emptied":       func(dir string) error { return os.Remove(filepath.Join(dir, LockFile)) },
		"without a log": func(dir string) error { return os.Remove(filepath.Join(dir, WALDir)) },
		"another store": func(dir string) error {
			return errors.Join(os.Rename(filepath.Join(dir, StoreDir), filepath.Join(dir, "old")), os.Mkdir(filepath.Join(dir, StoreDir), 0o700))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			for _, d := range []string{WALDir, StoreDir} {
				if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			lock, err := Lock(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			kept, err := identify(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := kept.check(); err != nil {
				t.Fatalf("before: %v", err)
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if err := kept.check(); !errors.Is(err, errGone) {
				t.Errorf("after: %v", err)
			}
			if what == "another store" {
				return // a watch that starts now would accept the new directory
			}
			cfg := config.Default()
			mark := DiskMark{dir: dir, cfg: &cfg, logger: slog.New(slog.DiscardHandler)}
			if err := mark.Watch(t.Context()); !errors.Is(err, errGone) {
				t.Errorf("watch: %v", err)
			}
		})
	}
}
