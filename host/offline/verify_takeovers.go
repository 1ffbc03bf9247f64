package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// maxNamedTakeovers bounds the entities that are named; further entities are
// only counted.
const maxNamedTakeovers = 100

// noteTakeovers lists entities whose state may be incomplete. Their first
// events are gone, and a module made a snapshot of them after a different
// module had written them. The metadata does not say that the states of the
// two modules were compared. These are notes and not faults, because only a
// person can judge whether something is missing. view is nil if the node has
// no metadata. It reads everything in the store, including data that is
// newer than the log's durable version.
func noteTakeovers(ctx context.Context, dir string, log recoveredLog, view *meta.View, out io.Writer) error {
	st, err := openToRead(filepath.Join(dir, datadir.StoreDir), log.rec.Watermark)
	if err != nil {
		return err
	}
	defer st.Close()
	from, err := kv.Of(st).ViewAt(st.MaxVersion())
	if err != nil {
		return err
	}
	defer from.Close()
	var found int
	for _, g := range log.generations(filepath.Join(dir, datadir.SnapshotDir)) {
		if g.Gone || g.Shard == sharding.MetaShard {
			continue
		}
		err := takeovers(ctx, from, g.Shard, g.Generation, func(id sharding.EntityID, t journal.Takeover) {
			if view != nil && view.LoadsByProof(id.Type, meta.Digest(t.By)) {
				return
			}
			if found++; found <= maxNamedTakeovers {
				fmt.Fprintf(out, "note  %s: %s/%s may lack a part of its state: its first events were truncated, and module %s created the snapshot at event %d after module %s had written events up to %d\n",
					datadir.StoreDir, id.Type, id.ID, t.By, t.Snapshot, t.Before, t.Sequence)
			}
		})
		if err != nil {
			return fmt.Errorf("check truncated histories of shard %d: %w", g.Shard, err)
		}
	}
	if found > maxNamedTakeovers {
		fmt.Fprintf(out, "note  %s: %d more entities may lack a part of their state\n", datadir.StoreDir, found-maxNamedTakeovers)
	}
	return nil
}

// takeovers reads the entity rows of a shard, and the remaining history of the
// entities whose first records were compacted.
func takeovers(ctx context.Context, view kv.View, shard sharding.ShardID, generation uint32, each func(sharding.EntityID, journal.Takeover)) error {
	known := rows.New(shard, generation, 0, func(err error) error { return err })
	prefix := store.AppendPrefix(nil, shard, generation, store.ClassEntity)
	return view.Scan(prefix, nil, func(key, body []byte) error {
		head, err := store.DecodeHead(body)
		if err != nil || head.Cut == nil {
			return err
		}
		id, _, err := store.SplitEntity(string(key[len(prefix):]))
		if err != nil {
			return err
		}
		e := history.Entity{Head: head, Exists: true, View: view, Rows: known, Key: store.AppendEntityID(nil, id)}
		all, err := e.Takeovers(ctx)
		if errors.Is(err, journal.ErrDamaged) {
			err = nil // written after the durable version, and incomplete
		}
		for _, t := range all {
			each(id, t)
		}
		return err
	})
}
