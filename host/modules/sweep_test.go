package modules

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// TestFilesOfUnknownModulesAreSwept checks that the file of a module that is
// not in the metadata is deleted an hour after its last upload and after it
// was first seen, and that the file of an upload in progress is not deleted.
func TestFilesOfUnknownModulesAreSwept(t *testing.T) {
	w := newSignedWorld(t, signing.Off)
	d, now := w.types.modules, time.Now()
	d.now = func() time.Time { return now }
	put := func(text string) meta.Module {
		t.Helper()
		digest, _, err := d.files.Put([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return meta.Module{Digest: meta.Digest(digest), Size: int64(len(text)), Name: "m", EntityTypes: []string{"a"}, UploadedAt: 2}
	}
	var swept []meta.Module
	removed, spread := put("removed"), put("spread")
	w.do(meta.PutModule(removed))
	sweep := func(after time.Duration, want ...meta.Module) {
		t.Helper()
		now = now.Add(after)
		gone := d.sweep(t.Context())
		if len(gone) != len(want) || len(want) == 1 && gone[0] != journal.Digest(want[0].Digest) {
			t.Fatalf("swept %v, want %d", gone, len(want))
		}
		for _, m := range []meta.Module{removed, spread} {
			if has := d.files.Has(journal.Digest(m.Digest)); has != !slices.ContainsFunc(append(swept, want...), func(w meta.Module) bool { return w.Digest == m.Digest }) {
				t.Fatalf("the file of %s is there: %v", m.Digest, has)
			}
		}
		swept = append(swept, want...)
	}
	sweep(2 * removeAfter) // the metadata may have been lost
	sweep(removeAfter / 2)
	sweep(removeAfter/2, spread)
	w.do(meta.RemoveModule(removed.Digest))
	sweep(0)
	// The module is uploaded again before it is swept, so its file is new.
	now = time.Now()
	d.unknownSince[journal.Digest(removed.Digest)] = now.Add(-2 * removeAfter)
	put("removed")
	sweep(removeAfter / 2)
	known := d.metadata.(*localMetadata)
	known.behind = func() error { return errors.New("the metadata has no leader") }
	sweep(removeAfter) // the metadata known here may be old
	known.behind = func() error {
		w.do(meta.PutModule(removed)) // the module was not applied on this node yet
		return nil
	}
	sweep(0)
	known.behind = nil
	sweep(0)
	w.do(meta.RemoveModule(removed.Digest))
	sweep(0) // the hour starts again
	sweep(removeAfter, removed)
}
