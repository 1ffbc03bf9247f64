package modules

import (
	"context"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// removeAfter is how long the file of a module that the metadata does not know
// stays: after it was put here last, and after this node saw first that it is
// not known. An upload spreads the file first, and then makes the module known:
// it takes minutes at most. Where metadata was lost, it leaves those who mend
// it the time to save the files.
const removeAfter = time.Hour

// sweep deletes the files of modules that the metadata does not know: those
// that were removed from it, and what an upload has left that was refused or
// cut off. It returns which. It is for one goroutine.
func (d *Distribution) sweep(ctx context.Context) (removed []journal.Digest) {
	here, err := d.files.List()
	if err != nil {
		d.logger.Warn("the files of modules cannot be listed", "error", err)
		return nil
	}
	if len(d.unknown(here)) == 0 {
		d.unknownSince = nil
		return nil
	}
	// What is not known may be news that has not come here yet.
	caught, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	if d.catchUp(caught) != nil {
		return nil
	}
	now, since := d.now(), map[journal.Digest]time.Time{}
	for _, digest := range d.unknown(here) {
		first, before := d.unknownSince[digest]
		if !before {
			first = now
		}
		if now.Sub(first) < removeAfter || !d.remove(digest, now.Add(-removeAfter)) {
			since[digest] = first
			continue
		}
		removed = append(removed, digest)
	}
	d.unknownSince = since
	return removed
}

// unknown are those that the metadata does not know.
func (d *Distribution) unknown(here []journal.Digest) (out []journal.Digest) {
	view := d.view()
	for _, digest := range here {
		if _, known := view.Module(meta.Digest(digest)); !known {
			out = append(out, digest)
		}
	}
	return out
}

// remove deletes the file of a module that was put last before a time.
func (d *Distribution) remove(digest journal.Digest, before time.Time) bool {
	gone, err := d.files.RemoveOlder(digest, before)
	if err != nil {
		d.logger.Warn("the file of a module that is not needed stays", "digest", digest.String(), "error", err)
	}
	if !gone {
		return false
	}
	if err := d.files.Release(digest); err != nil {
		d.logger.Warn("a module that is not needed stays in memory", "digest", digest.String(), "error", err)
	}
	d.logger.Info("the file of a module that the cluster does not know is deleted", "digest", digest.String())
	return true
}
