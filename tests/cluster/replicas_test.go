package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/history"
	"github.com/hostd/hostd/tests/testkit"
)

// replica is what a stopped node holds of a shard: of each entity how many
// records there are and what is in them.
type replica map[sharding.EntityID]content

type content struct {
	records  int
	last     journal.Sequence
	link     journal.Hash      // of the chain, at last
	digest   [sha256.Size]byte // of all records
	commands map[string]bool   // by id, those with events
}

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

// readReplicas reads the journal of a node that was stopped in order, without
// the code that serves it.
func readReplicas(t *testing.T, dir string) map[sharding.ShardID]replica {
	t.Helper()
	recovered, err := raftgroup.Recover(onlyReplay{dir: filepath.Join(dir, "wal")})
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
	out := map[sharding.ShardID]replica{}
	for _, life := range recovered.Lives(disk.OS{}, filepath.Join(dir, "snapshots")) {
		if life.Gone || life.Shard == sharding.MetaShard {
			continue
		}
		r := reader{out: replica{}, terms: map[uint64]sharding.Term{}}
		prefix := store.AppendPrefix(nil, life.Shard, life.Generation, store.ClassRecord)
		if err := view.Scan(prefix, nil, r.pack); err != nil {
			t.Fatalf("read shard %d in %s: %v", life.Shard, dir, err)
		}
		r.checkTerms(t, life.Shard)
		out[life.Shard] = r.out
	}
	return out
}

// reader reads the packs of one shard's records in the order of their keys.
type reader struct {
	out   replica
	terms map[uint64]sharding.Term // by index
	rec   journal.RecordView
	chain journal.Chain
}

func (r *reader) pack(_, body []byte) error {
	p, err := store.OpenPack(body)
	if err != nil {
		return err
	}
	for {
		at, raw, err := p.Next()
		if err != nil || raw == nil {
			return err
		}
		if err := r.record(at, raw); err != nil {
			return err
		}
	}
}

func (r *reader) record(at journal.Position, raw []byte) error {
	if err := r.rec.Parse(raw); err != nil {
		return err
	}
	id := r.rec.Entity()
	c := r.out[id]
	if r.rec.Expected != c.last || r.rec.Prev != c.link {
		return fmt.Errorf("%v: a record begins behind sequence %d, the one before ends at %d", id, r.rec.Expected, c.last)
	}
	if c.commands == nil {
		c.commands = map[string]bool{}
	}
	c.digest = sha256.Sum256(append(c.digest[:], raw...))
	c.records, c.last, c.link = c.records+1, r.rec.Last(), r.chain.AfterView(r.rec.Prev, &r.rec)
	if r.rec.EventCount > 0 {
		c.commands[string(r.rec.CommandID)] = true
	}
	r.out[id], r.terms[at.Index] = c, r.rec.Term
	return nil
}

// checkTerms demands one writer at a time: along the log no record of a term is
// behind one of a later term.
func (r *reader) checkTerms(t *testing.T, shard sharding.ShardID) {
	var last sharding.Term
	for _, index := range slices.Sorted(maps.Keys(r.terms)) {
		if r.terms[index] < last {
			t.Errorf("shard %d: a record of term %d is behind one of term %d, at index %d", shard, r.terms[index], last, index)
		}
		last = r.terms[index]
	}
}

// awaitLevel waits until every node has applied what every other has.
func awaitLevel(cluster *testkit.Cluster) {
	cluster.Await("all replicas are level", func() bool {
		applied := map[uint32]uint64{}
		for place, n := range cluster.Nodes() {
			if !n.Running() {
				continue
			}
			shards := cluster.Shards(place)
			for _, s := range shards {
				if was, seen := applied[s.GetShardId()]; seen && was != s.GetAppliedIndex() {
					return false
				}
				applied[s.GetShardId()] = s.GetAppliedIndex()
			}
			if len(shards) == 0 {
				return false
			}
		}
		return true
	})
}

// checkReplicas demands of a cluster whose nodes were level and then stopped in
// order that all replicas of a shard hold the same records, and that each holds
// every command that was acknowledged with events. It returns how many records
// it has compared.
func checkReplicas(t *testing.T, cluster *testkit.Cluster, shards int, h *history.History) (compared int) {
	t.Helper()
	copies := map[sharding.ShardID]int{}
	first := map[sharding.ShardID]replica{}
	for _, n := range cluster.Nodes() {
		for shard, r := range readReplicas(t, n.DataDir()) {
			if copies[shard]++; copies[shard] == 1 {
				first[shard] = r
			}
			if len(r) != len(first[shard]) {
				t.Errorf("shard %d: %d entities on %s, %d on another", shard, len(r), n.ID(), len(first[shard]))
			}
			for id, want := range first[shard] {
				compared += r[id].records
				if got := r[id]; got.records != want.records || got.last != want.last || got.digest != want.digest {
					t.Errorf("%v differs on %s: %d records to sequence %d, elsewhere %d to %d", id, n.ID(), got.records, got.last, want.records, want.last)
				}
			}
		}
	}
	for shard := sharding.ShardID(1); shard <= sharding.ShardID(shards); shard++ {
		if copies[shard] < min(3, len(cluster.Nodes())) {
			t.Errorf("shard %d is on %d nodes", shard, copies[shard])
		}
	}
	for _, e := range h.Entities() {
		id := sharding.EntityID{Type: e.Type, ID: e.ID}
		held := first[sharding.ShardOf(id, uint32(shards))][id]
		for _, a := range h.Attempts(e) {
			if !a.Query && a.Outcome == history.OK && a.EventCount > 0 && !held.commands[a.CommandID] {
				t.Errorf("%s: command %s was acknowledged at sequence %d and is in no replica", e, a.CommandID, a.Sequence)
			}
		}
	}
	return compared
}
