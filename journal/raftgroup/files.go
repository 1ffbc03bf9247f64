package raftgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// snapshotFiles is the directory of received snapshots. A file has its
// content's digest for a name, and counts only if a record names it.
type snapshotFiles struct {
	fs   disk.FS
	dir  string
	next atomic.Uint64 // number of the next one under way
}

func fileName(shard sharding.ShardID, replica sharding.ReplicaID, digest statefile.Digest) string {
	return fmt.Sprintf("%08x-%016x-%s.snapshot", uint32(shard), uint64(replica), digest)
}

// fileName is that of the snapshot that the group's life began with.
func (g *group) fileName() string {
	return fileName(g.shard, sharding.ReplicaID(g.replica), g.install.digest)
}

// open opens a file for reading from its start.
func (s *snapshotFiles) open(name string) (io.ReadCloser, error) {
	f, err := s.fs.OpenFile(filepath.Join(s.dir, name), disk.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the log names a snapshot whose file is missing", journal.ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	return &openFile{io.NewSectionReader(f, 0, size), f}, nil
}

type openFile struct {
	io.Reader
	io.Closer
}

// receive puts a stream into its file, checks it and makes it durable.
func (s *snapshotFiles) receive(from io.Reader, want statefile.Header, replica sharding.ReplicaID) (digest statefile.Digest, err error) {
	temp := filepath.Join(s.dir, fmt.Sprintf("incoming-%d.tmp", s.next.Add(1)))
	f, err := s.fs.Create(temp, 0)
	if err != nil {
		return digest, fmt.Errorf("receive snapshot: %w", err)
	}
	trailer, err := copyStream(f, from, want)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = s.fs.Rename(temp, filepath.Join(s.dir, fileName(want.Shard, replica, trailer.Digest)))
	}
	if err != nil {
		return digest, errors.Join(fmt.Errorf("receive snapshot: %w", err), s.fs.Remove(temp))
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return digest, fmt.Errorf("receive snapshot: %w", err)
	}
	return trailer.Digest, nil
}

func copyStream(to disk.File, from io.Reader, want statefile.Header) (t statefile.Trailer, err error) {
	r, err := statefile.NewReader(from, &appender{to: to})
	if err != nil {
		return t, err
	}
	if r.Header() != want {
		return t, fmt.Errorf("%w: the stream is of another state than its header says", journal.ErrDamaged)
	}
	for {
		if _, err := r.Next(false); errors.Is(err, io.EOF) {
			return r.Trailer(), nil
		} else if err != nil {
			return t, err
		}
	}
}

// appender writes to a file's end.
type appender struct {
	to disk.File
	at int64
}

func (a *appender) Write(p []byte) (int, error) {
	n, err := a.to.WriteAt(p, a.at)
	a.at += int64(n)
	return n, err
}

// clear removes all files but those named.
func (s *snapshotFiles) clear(named []string) error {
	if err := s.fs.MkdirAll(s.dir); err != nil {
		return fmt.Errorf("snapshot directory: %w", err)
	}
	names, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("snapshot directory: %w", err)
	}
	for _, name := range names {
		if slices.Contains(named, name) {
			continue
		}
		if err := s.fs.Remove(filepath.Join(s.dir, name)); err != nil {
			return fmt.Errorf("snapshot directory: %w", err)
		}
	}
	return nil
}

// pendingInstall is the snapshot that the group's life began with, as the
// state machine may need it.
func (s *snapshotFiles) pendingInstall(g *group) *statefile.Install {
	if g.install.index == 0 {
		return nil
	}
	name := g.fileName()
	return &statefile.Install{
		Index: g.install.index, Term: sharding.Term(g.install.term), Digest: g.install.digest,
		Open: func() (io.ReadCloser, error) { return s.open(name) },
	}
}

// openFiles readies the directory: what no record names is left from before
// its record, or from after its end.
func (d *Driver) openFiles(rec *Recovered) error {
	if d.opts.SnapshotDir == "" {
		return nil
	}
	d.files = &snapshotFiles{fs: d.opts.SnapshotFS, dir: d.opts.SnapshotDir}
	var named []string
	for _, g := range rec.groups {
		if g.install.index != 0 {
			named = append(named, g.fileName())
		}
	}
	return d.files.clear(named)
}

// removeFiles removes the files that no record needs any more. One that cannot
// be removed is found by the next start.
func (d *Driver) removeFiles() {
	for _, name := range d.core.obsolete {
		if err := d.files.fs.Remove(filepath.Join(d.files.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.opts.Logger.Warn("snapshot file not removed", "error", err)
		}
	}
	d.core.obsolete = d.core.obsolete[:0]
}

// hand gives the turn's snapshots to the state machine. Each comes with its
// file open: it may be replaced, and removed, before the machine looks at it.
func (d *Driver) hand(installs []Installation) error {
	for i := range installs {
		in := &installs[i]
		name := in.name
		f, err := d.files.open(name)
		if err != nil {
			return err
		}
		d.opts.Snapshots.Install(in.Shard, in.Generation, statefile.Install{
			Index: in.image.index, Term: sharding.Term(in.image.term), Digest: in.image.digest,
			Stream: f, Open: func() (io.ReadCloser, error) { return d.files.open(name) },
		})
		in.done(nil)
	}
	return nil
}

// ReceiveSnapshot takes a snapshot that came from a node, the stream of its
// driver's Outgoing, and steps it. done is called once: with nil when its record is
// durable, in a later turn, or with the reason why there is none. It is for a
// caller without a Loop.
func (d *Driver) ReceiveSnapshot(from sharding.NodeID, stream io.Reader, done func(error)) {
	h, err := readSnapshotHeader(stream)
	if err != nil {
		done(err)
		return
	}
	in, err := d.core.expect(from, h)
	if err != nil || in == nil {
		done(err)
		return
	}
	digest, err := d.files.receive(stream, h.file(), h.To)
	if err != nil {
		d.core.unexpect(in)
		done(err)
		return
	}
	d.core.stepSnapshot(in, digest, done)
	d.removeFiles()
}
