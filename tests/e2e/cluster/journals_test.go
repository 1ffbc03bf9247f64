package cluster

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// onlyReplay is a log that is only read.
type onlyReplay struct {
	raftgroup.Log
	dir string
}

func (l onlyReplay) Replay(fn func(wal.Position, byte, []byte) error) error {
	var first error
	_, err := wal.VerifyEach(disk.OS{}, l.dir, func(pos wal.Position, kind byte, payload []byte) error {
		if first == nil {
			first = fn(pos, kind, payload)
		}
		return nil
	})
	return errors.Join(err, first)
}

// shardJournal is the stored data of a shard on a stopped node.
type shardJournal struct {
	view       *store.View
	shard      sharding.ShardID
	generation uint32
	heads      map[sharding.EntityID]store.Head
}

// eachJournal reads the journal of a node that was stopped gracefully, shard by
// shard, without using the code that serves it.
func eachJournal(t *testing.T, dir string, fn func(*shardJournal)) {
	t.Helper()
	recovered, err := recovery.Recover(onlyReplay{dir: filepath.Join(dir, "wal")})
	if err != nil {
		t.Fatalf("recover %s: %v", dir, err)
	}
	st, err := store.Open(filepath.Join(dir, "store"), store.Options{ReadOnly: true, Watermark: recovered.Watermark})
	if err != nil {
		t.Fatalf("open the store of %s: %v", dir, err)
	}
	defer st.Close()
	view, err := st.ViewAt(st.MaxVersion())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	for _, generation := range recovered.Generations(disk.OS{}, filepath.Join(dir, "snapshots")) {
		if generation.Gone || generation.Shard == sharding.MetaShard {
			continue
		}
		s := &shardJournal{view: view, shard: generation.Shard, generation: generation.Generation, heads: map[sharding.EntityID]store.Head{}}
		if err := s.scan(store.ClassEntity, nil, func(rest, body []byte) error {
			id, _, err := store.SplitEntity(string(rest))
			if err == nil {
				s.heads[id], err = store.DecodeHead(body)
			}
			return err
		}); err != nil {
			t.Fatalf("read shard %d in %s: %v", generation.Shard, dir, err)
		}
		fn(s)
	}
}

// scan calls fn with each row of a class. rest is the part of the key after the
// class.
func (s *shardJournal) scan(class store.Class, start []byte, fn func(rest, body []byte) error) error {
	prefix := store.AppendPrefix(nil, s.shard, s.generation, class)
	n := len(prefix)
	return s.view.Scan(append(prefix, start...), nil, func(key, body []byte) error { return fn(key[n:], body) })
}

// records calls fn with the records of one entity after the other, each record
// once and in order, beginning with the first stored record.
func (s *shardJournal) records(fn func(id sharding.EntityID, at journal.Position, raw []byte) error) error {
	var id sharding.EntityID
	var last journal.Position
	return s.scan(store.ClassRecord, nil, func(rest, body []byte) error {
		of, _, err := store.SplitEntity(string(rest))
		if err != nil {
			return err
		}
		if of != id {
			if id, last = of, (journal.Position{}); s.heads[id].Cut != nil {
				last = s.heads[id].Cut.Last
			}
		}
		p, err := store.OpenPack(body)
		if err != nil || last.Less(p.Previous) {
			return err // the block skips records that are in another block
		}
		for {
			at, raw, err := p.Next()
			if err != nil || raw == nil {
				return err
			}
			if !last.Less(at) {
				continue // the record was truncated, or was in an earlier block
			}
			last = at
			if err := fn(id, at, raw); err != nil {
				return err
			}
		}
	})
}
