package cluster

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
)

// replica is the stored data of a shard on a stopped node.
type replica struct {
	entities map[sharding.EntityID]content
	rest     map[store.Class][sha256.Size]byte // digests of the rows other than entity rows and records
}

// content is the stored data of an entity.
type content struct {
	head     store.Head
	records  int
	last     journal.Sequence
	link     journal.Hash      // last chain hash
	digest   [sha256.Size]byte // digest of all records
	commands map[string]bool   // IDs of the commands with events
}

// beside lists the other classes of rows that are equal on every replica. It
// excludes event blocks and the blocks of the event order, because replicas may
// divide these differently.
var beside = []store.Class{
	store.ClassSnapshot, store.ClassTimer, store.ClassDue, store.ClassOutbox, store.ClassInbox, store.ClassCount, store.ClassDeadLetter,
}

// readReplicas reads the journal of a node that was stopped gracefully.
func readReplicas(t *testing.T, dir string) map[sharding.ShardID]replica {
	t.Helper()
	out := map[sharding.ShardID]replica{}
	eachJournal(t, dir, func(s *shardJournal) {
		r := reader{out: replica{map[sharding.EntityID]content{}, map[store.Class][sha256.Size]byte{}}, terms: map[uint64]sharding.Term{}}
		for id, h := range s.heads {
			c := content{head: h, commands: map[string]bool{}}
			if h.Cut != nil {
				c.last, c.link = h.Cut.Sequence, h.Cut.Hash
			}
			r.out.entities[id] = c
		}
		if err := s.records(r.record); err != nil {
			t.Fatalf("read shard %d in %s: %v", s.shard, dir, err)
		}
		for id, c := range r.out.entities {
			if c.last != c.head.Sequence || c.link != c.head.Hash || uint64(c.records) != c.head.Records {
				t.Errorf("%v in %s: %d records to sequence %d, the head has %d to %d", id, dir, c.records, c.last, c.head.Records, c.head.Sequence)
			}
		}
		for _, class := range beside {
			var sum [sha256.Size]byte
			if err := s.scan(class, nil, func(rest, body []byte) error {
				sum = sha256.Sum256(slices.Concat(sum[:], fmt.Appendf(nil, "%d %d ", len(rest), len(body)), rest, body))
				return nil
			}); err != nil {
				t.Fatalf("read shard %d in %s: %v", s.shard, dir, err)
			}
			r.out.rest[class] = sum
		}
		r.checkTerms(t, s.shard)
		out[s.shard] = r.out
	})
	return out
}

// reader reads the records of one shard.
type reader struct {
	out   replica
	terms map[uint64]sharding.Term // term of each entry, by index
	rec   journal.RecordView
	chain journal.Chain
}

func (r *reader) record(of sharding.EntityID, at journal.Position, raw []byte) error {
	if err := r.rec.Parse(raw); err != nil {
		return err
	}
	id := r.rec.Entity()
	c, headed := r.out.entities[id]
	switch {
	case id != of || !headed:
		return fmt.Errorf("%v: a record of %v, with a head: %v", of, id, headed)
	case r.rec.Expected != c.last || r.rec.Prev != c.link:
		return fmt.Errorf("%v: a record begins behind sequence %d, the one before ends at %d", id, r.rec.Expected, c.last)
	}
	c.digest = sha256.Sum256(append(c.digest[:], raw...))
	c.records, c.last, c.link = c.records+1, r.rec.Last(), r.chain.AfterView(r.rec.Prev, &r.rec)
	if r.rec.EventCount > 0 {
		command := string(r.rec.CommandID)
		if c.commands[command] && r.rec.Section(journal.SectionSource) == nil {
			return fmt.Errorf("%v: command %s took effect twice, again at sequence %d", id, command, c.last)
		}
		c.commands[command] = true
	}
	r.out.entities[id], r.terms[at.Index] = c, r.rec.Term
	return nil
}

// checkTerms checks that there was one writer at a time: no record in the log
// follows a record of a later term.
func (r *reader) checkTerms(t *testing.T, shard sharding.ShardID) {
	var last sharding.Term
	for _, index := range slices.Sorted(maps.Keys(r.terms)) {
		if r.terms[index] < last {
			t.Errorf("shard %d: a record of term %d is behind one of term %d, at index %d", shard, r.terms[index], last, index)
		}
		last = r.terms[index]
	}
}

// awaitLevel waits until all nodes have applied the same entries.
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

// compareReplicas checks that all replicas of a shard are equal: records,
// beginning at the same sequence, snapshots, timers, messages and the state of
// channels. The nodes must have applied the same entries and been stopped
// gracefully. compareReplicas returns one replica of each shard, and the number
// of records that it has compared.
func compareReplicas(t *testing.T, cluster *testkit.Cluster, shards int) (first map[sharding.ShardID]replica, compared int) {
	t.Helper()
	copies := map[sharding.ShardID]int{}
	first = map[sharding.ShardID]replica{}
	for _, n := range cluster.Nodes() {
		for shard, r := range readReplicas(t, n.DataDir()) {
			if copies[shard]++; copies[shard] == 1 {
				first[shard] = r
			}
			want := first[shard]
			if len(r.entities) != len(want.entities) {
				t.Errorf("shard %d: %d entities on %s, %d on another", shard, len(r.entities), n.ID(), len(want.entities))
			}
			for id, want := range want.entities {
				got := r.entities[id]
				compared += got.records
				if !reflect.DeepEqual(got.head, want.head) || got.digest != want.digest {
					t.Errorf("%v differs on %s: %d records, %+v, elsewhere %d, %+v", id, n.ID(), got.records, got.head, want.records, want.head)
				}
			}
			for class, sum := range want.rest {
				if r.rest[class] != sum {
					t.Errorf("shard %d: what is kept in class %q differs on %s", shard, class, n.ID())
				}
			}
		}
	}
	for shard := sharding.ShardID(1); shard <= sharding.ShardID(shards); shard++ {
		if copies[shard] < min(3, len(cluster.Nodes())) {
			t.Errorf("shard %d is on %d nodes", shard, copies[shard])
		}
	}
	return first, compared
}

// checkReplicas calls compareReplicas, and also checks that every command that
// was acknowledged with events is in the replicas. It returns the number of
// records that it has compared.
func checkReplicas(t *testing.T, cluster *testkit.Cluster, shards int, h *history.History) (compared int) {
	t.Helper()
	first, compared := compareReplicas(t, cluster, shards)
	for _, e := range h.Entities() {
		id := sharding.EntityID{Type: e.Type, ID: e.ID}
		held := first[sharding.ShardOf(id, uint32(shards))].entities[id]
		for _, a := range h.Attempts(e) {
			if !a.Query && a.Outcome == history.OK && a.EventCount > 0 && !held.commands[a.CommandID] {
				t.Errorf("%s: command %s was acknowledged at sequence %d and is in no replica", e, a.CommandID, a.Sequence)
			}
		}
	}
	return compared
}
