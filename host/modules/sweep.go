package modules

import (
	"context"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// removeAfter is how long the file of a module that is not in the metadata
// stays, counted both from its last upload to this node and from when this
// node first saw that the module is unknown. An upload distributes the file
// first and then adds the module to the metadata, within minutes. If metadata
// was lost, the delay gives operators time to save the files.
const removeAfter = time.Hour

// sweep deletes the files of modules that are not in the metadata: removed
// modules, and leftovers of rejected or aborted uploads. It returns the
// digests of the deleted files. It belongs to one goroutine.
func (d *Distribution) sweep(ctx context.Context) (removed []journal.Digest) {
	here, err := d.files.List()
	if err != nil {
		d.logger.Warn("cannot list module files", "error", err)
		return nil
	}
	if len(d.unknown(here)) == 0 {
		d.unknownSince = nil
		return nil
	}
	// An unknown module may be new, and its metadata not applied on this node
	// yet.
	caught, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	if d.metadata.CatchUp(caught) != nil {
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

// unknown returns the digests that are not in the metadata.
func (d *Distribution) unknown(here []journal.Digest) (out []journal.Digest) {
	view := d.metadata.View()
	for _, digest := range here {
		if _, known := view.Module(meta.Digest(digest)); !known {
			out = append(out, digest)
		}
	}
	return out
}

// remove deletes the file of a module whose last upload was before the given
// time.
func (d *Distribution) remove(digest journal.Digest, before time.Time) bool {
	gone, err := d.files.RemoveOlder(digest, before)
	if err != nil {
		d.logger.Warn("cannot delete the file of an unused module", "digest", digest.String(), "error", err)
	}
	if !gone {
		return false
	}
	if err := d.files.Release(digest); err != nil {
		d.logger.Warn("cannot unload an unused module", "digest", digest.String(), "error", err)
	}
	d.logger.Info("deleted the file of a module that is not in the cluster", "digest", digest.String())
	return true
}
