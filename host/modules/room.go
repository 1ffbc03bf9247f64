package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// The quotas of modules count the modules in the metadata. The files of removed
// modules and of unfinished uploads stay for removeAfter, so a caller who
// uploads and removes modules in a loop would fill the disks within the quotas.
// Therefore a node accepts no more files once the files outside the metadata
// have reached the same bytes, in total or for the uploader. The modules and
// these files together take at most twice the quota and one module, on each
// node. The room is counted on its own, and not together with the modules: after
// a quota was reached, a removal must make room at once.

// roomError reports that the files of removed modules and unfinished uploads
// leave no room for another module.
type roomError struct{ text string }

func (e *roomError) Error() string {
	return e.text + "; they are deleted about an hour after the removal or the last upload"
}

// Code implements status.Coded.
func (e *roomError) Code() connect.Code { return connect.CodeResourceExhausted }

// room returns a *roomError if this node has as many bytes outside the metadata
// as it may.
func (d *Distribution) room(m meta.Module) error {
	view := d.metadata.View()
	if _, known := view.Module(m.Digest); known {
		return nil
	}
	here, err := d.files.List()
	if err != nil {
		return err
	}
	unknown := d.unknown(here)
	sizes := make([]int64, len(unknown))
	for i, digest := range unknown {
		sizes[i] = d.files.Size(digest)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.uploaders, func(digest journal.Digest, _ string) bool {
		_, has := slices.BinarySearchFunc(here, digest, func(a, b journal.Digest) int { return bytes.Compare(a[:], b[:]) })
		return !has
	})
	use, most := meta.ModuleQuotas{Modules: len(unknown)}, view.ModuleQuotas()
	for i, digest := range unknown {
		use.Bytes += sizes[i]
		if m.Uploader != "" && d.uploaders[digest] == m.Uploader {
			use.OfOne++
			use.BytesOfOne += sizes[i]
		}
	}
	// A low quota of modules must not prevent an uploader from replacing them.
	switch files := max(most.OfOne, meta.DefaultModuleQuotas.OfOne); {
	case use.Modules >= meta.MaxModules || use.Bytes >= most.Bytes:
		return &roomError{fmt.Sprintf("the node still has %d files with %d bytes of removed modules and unfinished uploads, at most %d files and %d bytes are allowed", use.Modules, use.Bytes, meta.MaxModules, most.Bytes)}
	case use.OfOne >= files || use.BytesOfOne >= most.BytesOfOne:
		return &roomError{fmt.Sprintf("the node still has %d files with %d bytes of the uploader's removed modules and unfinished uploads, at most %d files and %d bytes are allowed", use.OfOne, use.BytesOfOne, files, most.BytesOfOne)}
	}
	return nil
}

// put stores the bytes of an upload on this node, if there is room. at is the
// modification time of the file, and zero if it was there already.
func (d *Distribution) put(ctx context.Context, m meta.Module, wasm []byte) (at time.Time, err error) {
	if d.room(m) != nil {
		// The metadata known here may be old.
		if err := d.metadata.CatchUp(ctx); err != nil {
			return at, err
		}
	}
	_, at, err = d.files.PutIf(wasm, func() error { return d.room(m) })
	if err == nil {
		d.noteUploader(journal.Digest(m.Digest), m.Uploader)
	}
	return at, err
}

// noteUploader remembers who uploaded a module, until its file is deleted.
func (d *Distribution) noteUploader(digest journal.Digest, uploader string) {
	if uploader == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uploaders == nil {
		d.uploaders = map[journal.Digest]string{}
	}
	d.uploaders[digest] = uploader
}

// Put implements cluster.Blobs: another node has received an upload. This node
// does not know the uploader, so it counts only all bytes.
func (d *Distribution) Put(ctx context.Context, wasm []byte) error {
	_, err := d.put(ctx, meta.Module{Digest: meta.Digest(guest.DigestOf(wasm))}, wasm)
	var full *roomError
	if errors.As(err, &full) {
		return fmt.Errorf("%w: %w", peer.ErrUnavailable, err)
	}
	return err
}

// Get implements cluster.Blobs.
func (d *Distribution) Get(digest journal.Digest) ([]byte, error) { return d.files.Get(digest) }

// releaseUnknown unloads a module that was compiled for a rejected upload.
func (d *Distribution) releaseUnknown(digest meta.Digest) error {
	if _, known := d.metadata.View().Module(digest); known {
		return nil
	}
	return d.files.Release(journal.Digest(digest))
}
