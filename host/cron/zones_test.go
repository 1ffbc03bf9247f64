package cron

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMachineZonesAreNotUsed checks that zones that exist only on the machine,
// in its files, in ZONEINFO or in TZ, are not found.
func TestMachineZonesAreNotUsed(t *testing.T) {
	f, err := zoneFiles()["Europe/Berlin"].Open()
	if err != nil {
		t.Fatal(err)
	}
	berlin, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"Mars/Olympus", "localtime", "right/Europe/Berlin"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, berlin, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ZONEINFO", dir)
	t.Setenv("TZ", "Europe/Berlin")
	for _, zone := range []string{
		"Mars/Olympus", "localtime", "Local", "posixrules", "right/Europe/Berlin", "right/UTC", "posix/Europe/Berlin", "posix/UTC",
		"../zoneinfo/Europe/Berlin", "Europe/../Europe/Berlin", "./Europe/Berlin", "/usr/share/zoneinfo/Europe/Berlin", "europe/berlin",
		"Europe", "Europe/", "Europe/Berlin ", "Europe/Berlin\x00", "zone.tab", "tzdata.zi", strings.Repeat("a", maxZoneBytes+1),
	} {
		if loc, err := Zone(zone); !errors.Is(err, errZone) {
			t.Errorf("%q: %v, %v", zone, loc, err)
		}
	}
}

// TestEveryZoneOfTheDatabase checks that all zones can be loaded.
func TestEveryZoneOfTheDatabase(t *testing.T) {
	for name := range zoneFiles() {
		if loc, err := Zone(name); err != nil || loc.String() != name {
			t.Errorf("%q: %v, %v", name, loc, err)
		}
	}
	for name, want := range map[string]int{"": 0, "UTC": 0, "Etc/UTC": 0, "Europe/Berlin": 7200, "Asia/Kolkata": 19800, "America/New_York": -14400} {
		loc, err := Zone(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, offset := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC).In(loc).Zone(); offset != want {
			t.Errorf("%q is %d s ahead of UTC, want %d", name, offset, want)
		}
	}
}
