package offline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// readStore finds the highest activation revision. The revisions are in the
// shards' applied rows, in the store or in snapshots that are not yet
// installed, and in the log entries after these rows.
func (r *remains) readStore(dir string, rec *recovery.Recovered) error {
	st, err := openToRead(filepath.Join(dir, datadir.StoreDir), rec.Watermark)
	if err != nil {
		return err
	}
	revision, err := storedRevision(st, rec.Watermark)
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	r.Revision = revision
	for _, l := range rec.Generations(disk.OS{}, filepath.Join(dir, datadir.SnapshotDir)) {
		if l.Install != nil && l.Shard != sharding.MetaShard {
			mark, err := snapshotMark(l.Install)
			if err != nil {
				return fmt.Errorf("snapshot of shard %d: %w", l.Shard, err)
			}
			r.Revision = max(r.Revision, mark.Revision)
		}
		for _, e := range rec.Entries(l.Shard) {
			if entry, err := journal.DecodeEntry(e.Data); err == nil {
				if revision, ok := entry.BindingsRevision(); ok {
					r.Revision = max(r.Revision, revision)
				}
			}
		}
	}
	return nil
}

func storedRevision(st *store.Store, watermark uint64) (highest uint64, err error) {
	view, err := st.ViewAt(watermark)
	if err != nil {
		return 0, err
	}
	defer view.Close()
	generations, err := view.Generations()
	for i := range generations {
		highest = max(highest, generations[i].Applied.Revision)
	}
	return highest, err
}

// snapshotMark reads the applied row of a snapshot, which is its first row.
func snapshotMark(in *statefile.Install) (mark store.Applied, err error) {
	f, err := in.Open()
	if err != nil {
		return mark, err
	}
	defer f.Close()
	r, err := statefile.NewReader(f, nil)
	if err != nil {
		return mark, err
	}
	chunk, err := r.Next(true)
	if err != nil {
		return mark, err
	}
	err = chunk.Each(func(key, value []byte) (err error) {
		if len(key) == 1 && store.Class(key[0]) == store.ClassApplied {
			mark, err = store.DecodeApplied(value)
		}
		return err
	})
	return mark, err
}

// metaGeneration returns the current generation of shard 0 on a stopped node,
// or false if there is none.
func metaGeneration(rec *recovery.Recovered, snapshots string) (statefile.Generation, bool) {
	for _, l := range rec.Generations(disk.OS{}, snapshots) {
		if l.Shard == sharding.MetaShard && !l.Gone {
			return l, true
		}
	}
	return statefile.Generation{}, false
}

// storedMetadata reads the pairs of shard 0 at the durable version, and their
// applied index. If the generation has no applied row in the store, its
// pairs are in the snapshot with which the generation begins, or there are
// no pairs.
func storedMetadata(st *store.Store, watermark uint64, generation statefile.Generation) (pairs []meta.KV, at store.Applied, err error) {
	view, err := st.ViewAt(watermark)
	if err != nil {
		return nil, at, err
	}
	defer view.Close()
	marked, err := view.Get(store.AppendPrefix(nil, sharding.MetaShard, generation.Generation, store.ClassApplied), func(body []byte) (err error) {
		at, err = store.DecodeApplied(body)
		return err
	})
	switch {
	case err != nil:
		return nil, at, err
	case !marked && generation.Install != nil:
		pairs, err = snapshotMetadata(generation.Install)
		return pairs, store.Applied{Index: generation.Install.Index, Term: generation.Install.Term}, err
	case !marked:
		return nil, at, nil
	}
	prefix := store.AppendPrefix(nil, sharding.MetaShard, generation.Generation, store.ClassMeta)
	err = view.Scan(prefix, nil, func(key, body []byte) error {
		pairs = append(pairs, meta.KV{Key: bytes.Clone(key[len(prefix):]), Value: bytes.Clone(body)})
		return nil
	})
	return pairs, at, err
}

// snapshotMetadata reads the pairs from a received snapshot of shard 0.
func snapshotMetadata(in *statefile.Install) (pairs []meta.KV, err error) {
	f, err := in.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := statefile.NewReader(f, nil)
	if err != nil {
		return nil, err
	}
	for {
		chunk, err := r.Next(true)
		if errors.Is(err, io.EOF) {
			if r.Trailer().Digest != in.Digest {
				return nil, fmt.Errorf("%w: the snapshot differs from the one in the log", journal.ErrDamaged)
			}
			return pairs, nil
		}
		if err != nil {
			return nil, err
		}
		err = chunk.Each(func(key, value []byte) error {
			if len(key) > 0 && store.Class(key[0]) == store.ClassMeta {
				pairs = append(pairs, meta.KV{Key: key[1:], Value: value})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
}

// applyMetadata applies an entry of shard 0 as every replica does.
func applyMetadata(state *meta.State, e journal.Committed) error {
	if len(e.Data) == 0 {
		return nil
	}
	entry, err := journal.DecodeEntry(e.Data)
	if err != nil {
		return fmt.Errorf("entry %d of shard 0: %w", e.Index, err)
	}
	if entry.Kind == journal.EntryMeta && entry.Fence == e.Term {
		if _, _, err := state.Apply(e.Index, entry.Body); err != nil {
			return fmt.Errorf("entry %d of shard 0: %w", e.Index, err)
		}
	}
	return nil
}

// metadataStream returns a snapshot of shard 0 with the pairs of state, to be
// installed.
func metadataStream(state *meta.State, index uint64, term sharding.Term) io.ReadCloser {
	mark := store.AppendApplied(nil, &store.Applied{Index: index, Term: term})
	from := &pairSource{next: []meta.KV{{Key: []byte{byte(store.ClassApplied)}, Value: mark}}}
	for _, kv := range state.Dump() {
		from.next = append(from.next, meta.KV{Key: append([]byte{byte(store.ClassMeta)}, kv.Key...), Value: kv.Value})
	}
	return statefile.NewWriter(statefile.Header{Shard: sharding.MetaShard, Index: index, Term: term}, from)
}

// pairSource returns pairs one by one.
type pairSource struct{ next []meta.KV }

func (s *pairSource) Next() (key, value []byte, err error) {
	if len(s.next) == 0 {
		return nil, nil, io.EOF
	}
	kv := s.next[0]
	s.next = s.next[1:]
	return kv.Key, kv.Value, nil
}

func (s *pairSource) Close() error { return nil }
