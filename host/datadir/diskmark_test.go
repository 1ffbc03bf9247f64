package datadir

import (
	"testing"

	"github.com/hostd/hostd/host/config"
)

// The limit is 5 % of the disk. It is bounded below, so that the store can
// complete what it has begun, and above, so that it does not waste much of a
// large disk.
func TestDiskReserveIsBounded(t *testing.T) {
	cfg := config.Default()
	for total, want := range map[uint64]uint64{
		1 << 30:   512 << 20,
		20_000e6:  1_000e6,
		270_000e6: 4 << 30,
	} {
		d := DiskMark{cfg: &cfg}
		d.total.Store(total)
		if got := d.mark(); got != want {
			t.Errorf("of %d bytes: %d, not %d", total, got, want)
		}
	}
	cfg.DiskReadOnlyBytes = 8 << 30
	d := DiskMark{cfg: &cfg}
	d.total.Store(270_000e6)
	if got := d.mark(); got != 8<<30 {
		t.Errorf("what is asked for at least: %d", got)
	}
}
