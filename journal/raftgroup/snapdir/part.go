package snapdir

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// checkBytes is the number of bytes of a part from before the restart that are
// checked per request. The limit keeps a request short; the sender asks again
// for the rest.
const checkBytes = 1 << 30

// Part is the received part of a snapshot. It is in a file of its own, so that
// an interrupted transfer resumes where it stopped, even after a restart: the
// checksums in the file show how many of its bytes are intact.
type Part struct {
	name string
	// digest is the digest of the whole snapshot. If it is zero, the sender did
	// not provide a digest, and an interrupted transfer starts over.
	digest statefile.Digest
	// reader has verified the confirmed bytes; nil if there are none.
	reader *statefile.Reader
	// unchecked means that the file is from before the restart, and that its
	// intact length is unknown.
	unchecked bool
	kept      int64  // bytes that the part adds to Dir.kept while it waits
	since     uint64 // time at which it started waiting, on the caller's clock
}

// Offset returns the number of confirmed bytes.
func (p *Part) Offset() int64 {
	if p.reader == nil {
		return 0
	}
	return p.reader.Offset()
}

// Matches reports whether this is part of the snapshot with that header and digest.
func (p *Part) Matches(h statefile.Header, digest statefile.Digest) bool {
	return p.digest == digest && digest != statefile.Digest{} && (p.reader == nil || p.reader.Header() == h)
}

const partSuffix = ".partial"

// NewPart returns an empty part of a snapshot.
func (d *Dir) NewPart(shard sharding.ShardID, replica sharding.ReplicaID, digest statefile.Digest) *Part {
	if digest == (statefile.Digest{}) {
		return &Part{name: fmt.Sprintf("incoming-%d.tmp", d.next.Add(1))}
	}
	name := Name(shard, replica, digest)
	return &Part{name: strings.TrimSuffix(name, snapshotSuffix) + partSuffix, digest: digest}
}

// FindPart returns the part in a file found at the start, or nil if the file
// is not a part for this replica.
func (d *Dir) FindPart(shard sharding.ShardID, replica sharding.ReplicaID, name string) *Part {
	var digest statefile.Digest
	head, ok := strings.CutSuffix(name, partSuffix)
	if !ok || len(head) < 2*len(digest) {
		return nil
	}
	if _, err := hex.Decode(digest[:], []byte(head[len(head)-2*len(digest):])); err != nil {
		return nil
	}
	p := d.NewPart(shard, replica, digest)
	info, err := d.fs.Stat(filepath.Join(d.path, name))
	if p.name != name || err != nil {
		return nil
	}
	p.unchecked, p.kept = true, info.Size
	return p
}

// Check verifies a part from before the restart, and reports whether more bytes
// remain to be checked.
func (d *Dir) Check(p *Part) (more bool, err error) {
	if !p.unchecked {
		return false, nil
	}
	f, err := d.fs.OpenFile(filepath.Join(d.path, p.name), disk.ReadOnly)
	if err == nil {
		defer f.Close()
		more, err = p.confirm(f)
	}
	if err != nil {
		p.reader = nil
	}
	p.unchecked = more
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if !more && err == nil {
		d.logger.Info("found a partially received snapshot of the previous run", "file", p.name, "bytes", p.Offset())
	}
	return more, err
}

func (p *Part) confirm(f disk.File) (more bool, err error) {
	size, err := f.Size()
	if err != nil {
		return false, err
	}
	rest := io.NewSectionReader(f, p.Offset(), size-p.Offset())
	if p.reader != nil {
		p.reader.Resume(rest, nil)
	} else if p.reader, err = statefile.NewReader(rest, nil); err != nil {
		p.reader = nil
	}
	for end := p.Offset() + checkBytes; err == nil; {
		if p.Offset() >= end {
			return true, nil
		}
		_, err = p.reader.Next(false)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrUnsupported) {
		err = nil // bytes that were not synced before a power cut are sent again
	}
	return false, err
}

// Receive appends a stream to the part, verifies it and makes it durable. It
// skips the first skip bytes of the stream, which the part already has.
func (d *Dir) Receive(from io.Reader, want statefile.Header, replica sharding.ReplicaID, p *Part, skip int64) (digest statefile.Digest, err error) {
	temp := filepath.Join(d.path, p.name)
	f, err := d.openPart(p)
	if err != nil {
		p.reader = nil
		return digest, fmt.Errorf("receive snapshot: %w", err)
	}
	to := &syncWriter{to: f, at: p.Offset(), every: d.every, synced: func() error { return d.fs.SyncDir(d.path) }}
	trailer, err := p.take(from, to, want, skip)
	broken := to.err
	if err == nil {
		broken = f.Sync()
	}
	broken = errors.Join(broken, f.Close())
	if err == nil && broken == nil {
		broken = d.fs.Rename(temp, filepath.Join(d.path, Name(want.Shard, replica, trailer.Digest)))
	}
	if err = errors.Join(err, broken); err != nil {
		err = fmt.Errorf("receive snapshot: %w", err)
		if broken != nil || p.digest == (statefile.Digest{}) {
			p.reader = nil // the content of the file is unknown
		}
		if p.Offset() == 0 {
			err = errors.Join(err, d.fs.Remove(temp))
		}
		return digest, err
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		return digest, fmt.Errorf("receive snapshot: %w", err)
	}
	return trailer.Digest, nil
}

// openPart opens the file and truncates it to the confirmed bytes.
func (d *Dir) openPart(p *Part) (disk.File, error) {
	p.unchecked = false
	temp := filepath.Join(d.path, p.name)
	if p.Offset() == 0 {
		p.reader = nil
		return d.fs.Create(temp, 0)
	}
	f, err := d.fs.OpenFile(temp, disk.ReadWrite)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(p.Offset()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// take reads the rest of the stream.
func (p *Part) take(from io.Reader, to io.Writer, want statefile.Header, skip int64) (t statefile.Trailer, err error) {
	if _, err := io.CopyN(io.Discard, from, skip); err != nil {
		return t, err
	}
	if p.reader != nil {
		p.reader.Resume(from, to)
	} else if p.reader, err = statefile.NewReader(from, to); err != nil {
		p.reader = nil
		return t, err
	}
	defer func() {
		if p.reader != nil {
			p.reader.Resume(nil, nil)
		}
	}()
	if p.reader.Header() != want {
		p.reader = nil
		return t, fmt.Errorf("%w: the snapshot's contents contradict its header", journal.ErrDamaged)
	}
	for err == nil {
		_, err = p.reader.Next(false)
	}
	if !errors.Is(err, io.EOF) {
		return t, err
	}
	t = p.reader.Trailer()
	if p.digest != (statefile.Digest{}) && p.digest != t.Digest {
		p.reader = nil
		return t, fmt.Errorf("%w: the snapshot's digest differs from the digest that the sender announced", journal.ErrDamaged)
	}
	return t, nil
}

// IsEmpty reports whether there is nothing to resume.
func (p *Part) IsEmpty() bool { return p.Offset() == 0 && !p.unchecked }

// Index returns the index of the snapshot, 0 while it is unknown.
func (p *Part) Index() uint64 {
	if p.reader == nil {
		return 0
	}
	return p.reader.Header().Index
}

// KeepPart starts counting a waiting part as expendable. now is the time on the
// caller's clock.
func (d *Dir) KeepPart(p *Part, now uint64) {
	p.since = now
	if !p.unchecked {
		p.kept = p.Offset()
	}
	d.AddKept(p.kept)
}

// Since returns when the part was last kept.
func (p *Part) Since() uint64 { return p.since }

// TakePart stops counting the part as expendable, because it will be written
// to.
func (d *Dir) TakePart(p *Part) { d.AddKept(-p.kept) }

// DiscardPart discards a part that is not kept.
func (d *Dir) DiscardPart(p *Part) { d.Discard(p.name) }

// Name returns the file name.
func (p *Part) Name() string { return p.name }
