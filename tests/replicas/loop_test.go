package replicas_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// many is the number of groups that grow at the same time.
var many = flag.Int("groups", 64, "groups that grow from one member to three")

// hosts are nodes with the loop, the applier and all their goroutines, on real
// directories. Their network is function calls.
type hosts struct {
	tb  testing.TB
	all []*host
	// memTable is the size of the stores' memtables.
	memTable int64
	sends    atomic.Int64              // number of accepted snapshots
	bytes    atomic.Int64              // total size of all snapshots
	most     atomic.Int64              // maximum number of snapshots that one node sent at a time
	broken   func(io.Reader) io.Reader // wraps each stream
}

type host struct {
	h       *hosts
	id      int
	dir     string
	log     *wal.Log
	store   *store.Store
	machine *eventlog.Machine
	applier *eventlog.Applier
	loop    *raftgroup.Loop
	inbox   chan sentFrame
	wait    sync.WaitGroup

	sending atomic.Int64

	mu    sync.Mutex
	leads map[sharding.ShardID]sharding.Term
	done  map[sharding.ShardID]uint64 // applied proposals
	fails []error
}

func newHosts(tb testing.TB, n int, memTable int64) *hosts {
	h := &hosts{tb: tb, memTable: memTable}
	for i := range n {
		h.all = append(h.all, &host{h: h, id: i, dir: tb.TempDir()})
	}
	for _, n := range h.all {
		n.start()
	}
	return h
}

func (n *host) start() {
	n.h.tb.Helper()
	fail := func(err error) {
		n.h.tb.Helper()
		if err != nil {
			n.h.tb.Fatal(err)
		}
	}
	var err error
	n.log, err = wal.Open(disk.OS{}, filepath.Join(n.dir, "wal"), wal.Options{SegmentBytes: 8 << 20})
	fail(err)
	rec, err := recovery.Recover(n.log)
	fail(err)
	n.store, err = store.Open(filepath.Join(n.dir, "store"), store.Options{Watermark: rec.Watermark, MemTableBytes: n.h.memTable})
	fail(err)
	snapshots := filepath.Join(n.dir, "snapshots")
	n.machine, err = eventlog.Open(n.store, rec.Watermark, eventlog.Options{Metadata: newRegistry(), Generations: rec.Generations(disk.OS{}, snapshots)})
	fail(err)
	last := map[sharding.ShardID]uint64{}
	for _, g := range rec.Groups {
		last[g.Shard] = g.LastIndex
	}
	fail(n.machine.SetRecoveryTargets(last))
	n.mu.Lock()
	n.leads, n.done = map[sharding.ShardID]sharding.Term{}, map[sharding.ShardID]uint64{}
	n.mu.Unlock()
	n.applier, err = eventlog.StartApplier(n.machine, eventlog.ApplierOptions{Sink: n, Fatal: n.fatal, FlushInterval: 20 * time.Millisecond})
	fail(err)
	inbox := make(chan sentFrame, 4096)
	loop, err := raftgroup.Start(rec, raftgroup.Options{
		Self: name(n.id), Log: n.log, Machine: n.applier, Sink: n, Transport: n, Snapshots: n.applier, Sender: n, OnFatal: n.fatal,
		SnapshotFS: disk.OS{}, SnapshotDir: snapshots,
		Placement:    homes{},
		AppliedIndex: func(s sharding.ShardID) uint64 { index, _ := n.machine.Applied(s); return index },
		Tick:         20 * time.Millisecond, TruncateTicks: 5, RetainBytes: 1,
	})
	fail(err)
	n.mu.Lock()
	n.inbox, n.loop = inbox, loop
	n.mu.Unlock()
	n.wait.Go(func() {
		for m := range inbox {
			from := name(m.from)
			loop.PeerAlive(from)
			if err := loop.Receive(from, m.frame); err != nil && !errors.Is(err, raftgroup.ErrStopped) {
				n.fatal(err)
			}
		}
	})
}

func (n *host) stop() {
	n.h.tb.Helper()
	ctx := context.Background()
	n.mu.Lock()
	close(n.inbox)
	n.inbox = nil
	n.mu.Unlock()
	err := errors.Join(n.loop.Close(ctx), n.applier.Close(ctx), n.store.Close(), n.log.Close())
	n.wait.Wait()
	if err := errors.Join(append(n.fails, err)...); err != nil {
		n.h.tb.Fatalf("node %d: %v", n.id, err)
	}
}

func (h *hosts) stop() {
	for _, n := range h.all {
		n.stop()
	}
}

func (n *host) fatal(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails = append(n.fails, err)
}

func (n *host) Send(to sharding.NodeID, frame []byte) {
	for _, o := range n.h.all {
		if name(o.id) == to {
			o.mu.Lock()
			select {
			case o.inbox <- sentFrame{n.id, frame}:
			default:
			}
			o.mu.Unlock()
		}
	}
}

// SendSnapshot implements raftgroup.SnapshotSender.
func (n *host) SendSnapshot(ctx context.Context, to sharding.NodeID, head []byte, stream io.Reader) ([]byte, error) {
	now := n.sending.Add(1)
	defer n.sending.Add(-1)
	for most := n.h.most.Load(); now > most && !n.h.most.CompareAndSwap(most, now); most = n.h.most.Load() {
	}
	for _, o := range n.h.all {
		if name(o.id) == to {
			o.mu.Lock()
			loop := o.loop
			o.mu.Unlock()
			if n.h.broken != nil {
				stream = n.h.broken(stream)
			}
			answer, err := loop.ReceiveSnapshot(ctx, name(n.id), head, io.TeeReader(stream, &counter{&n.h.bytes}))
			if err == nil && answer == nil {
				n.h.sends.Add(1)
			}
			return answer, err
		}
	}
	return nil, errors.New("no such node")
}

type counter struct{ n *atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) { c.n.Add(int64(len(p))); return len(p), nil }

func (n *host) LeaderChanged(s sharding.ShardID, term sharding.Term, _ sharding.ReplicaID, self bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.leads, s)
	if self {
		n.leads[s] = term
	}
}
func (n *host) QuorumChanged(sharding.ShardID, bool)                           {}
func (n *host) ProposalDropped(sharding.ShardID, sharding.Term, uint64, error) {}
func (n *host) ReadConfirmed(sharding.ShardID, uint64, uint64)                 {}
func (n *host) ReadFailed(sharding.ShardID, uint64, error)                     {}

func (n *host) OnApplied(vs []eventlog.ApplyResult) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range vs {
		if v.Err != nil {
			n.fails = append(n.fails, v.Err)
		}
		n.done[v.Shard] = max(n.done[v.Shard], v.Proposal)
	}
}

// eventually waits until a condition holds.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("did not happen: %s", what)
		}
	}
}

func (n *host) term(s sharding.ShardID) sharding.Term {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leads[s]
}

// fill writes entities with one record each, many in an entry.
func (n *host) fill(s sharding.ShardID, entities, size int) {
	n.h.tb.Helper()
	var term sharding.Term
	eventually(n.h.tb, "leadership", func() bool { term = n.term(s); return term != 0 })
	number := uint64(0)
	for first := 0; first < entities; {
		number++
		data := journal.AppendEntryHeader(nil, journal.EntryRecords, term, number)
		for ; first < entities && len(data) < 200<<10; first++ {
			data = journal.AppendRecord(data, &journal.Record{
				Entity: entity(fmt.Sprintf("e%07d", first)), Term: term, CommandID: "c", Reply: []byte("ok"),
				Events: []journal.Event{{Type: "happened", Payload: make([]byte, size)}},
			})
		}
		eventually(n.h.tb, "a proposal", func() bool { return n.loop.Propose(s, term, number, data) == nil })
	}
	eventually(n.h.tb, "the writes", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.done[s] >= number
	})
}

func (n *host) restart() {
	n.stop()
	n.start()
}

func (h *hosts) join(s sharding.ShardID, replicas ...sharding.ReplicaID) {
	h.tb.Helper()
	for _, r := range replicas {
		if err := h.all[home(r)].loop.CreateGroups([]raftgroup.GroupConfig{{Shard: s, Replica: r, Voters: []sharding.ReplicaID{sharding.ReplicaID(s)*10 + 10}}}); err != nil {
			h.tb.Fatal(err)
		}
	}
}

// grow changes groups from one member to three.
func (h *hosts) grow(shards ...sharding.ShardID) {
	h.tb.Helper()
	first := h.all[0]
	for _, s := range shards {
		id := sharding.ReplicaID(s)*10 + 10
		eventually(h.tb, "learners", func() bool {
			err := first.loop.ChangeMembers(s, first.term(s), raftgroup.Change{AddLearners: []sharding.ReplicaID{id + 1, id + 2}})
			if err != nil {
				return false
			}
			st, err := first.loop.Status(s)
			return err == nil && len(st.Learners) == 2
		})
	}
	for _, s := range shards {
		eventually(h.tb, "the learners' state", func() bool {
			want, _ := first.machine.StateIndex(s)
			for _, n := range h.all[1:] {
				if have, _ := n.machine.StateIndex(s); have < want || want == 0 {
					return false
				}
			}
			return true
		})
	}
}

func TestManyGroupsGrowConcurrently(t *testing.T) {
	h := newHosts(t, 3, 1<<20)
	groups := sharding.ShardID(*many)
	var shards []sharding.ShardID
	first := h.all[0]
	for s := range groups {
		shards = append(shards, s+1)
		h.join(s+1, sharding.ReplicaID(s+1)*10+10)
	}
	for _, s := range shards {
		first.fill(s, 3, 100)
	}
	first.cut(shards...)
	for _, s := range shards {
		id := sharding.ReplicaID(s)*10 + 10
		h.join(s, id+1, id+2)
	}
	begin := time.Now()
	h.grow(shards...)
	t.Logf("%d snapshots in %v", h.sends.Load(), time.Since(begin))
	if h.sends.Load() < 2*int64(groups) {
		t.Errorf("%d snapshots", h.sends.Load())
	}
	if most := h.most.Load(); most > 8 {
		t.Errorf("%d snapshots at a time", most)
	}
	for _, s := range shards {
		for _, n := range h.all {
			if c := n.machine.Entities(s); c != 3 {
				t.Fatalf("node %d has %d entities of shard %d", n.id, c, s)
			}
		}
	}
	for _, s := range shards[:8] {
		if err := h.all[1].loop.RemoveGroups([]raftgroup.ReplicaRef{{Shard: s, Replica: sharding.ReplicaID(s)*10 + 11}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the end of the entities", func() bool { return h.all[1].machine.Entities(s) == 0 })
	}
	h.all[1].restart()
	h.stop()
}

// cut waits until the logs of the groups are truncated: writes to other shards
// fill memtables until there are tables. If the last entries of a group are in
// the same batch as the first of these writes, more writes are needed.
func (n *host) cut(shards ...sharding.ShardID) {
	n.h.tb.Helper()
	isCut := func(s sharding.ShardID) bool {
		st, err := n.loop.Status(s)
		return err == nil && st.First > 2
	}
	for round := range 10 {
		filler := sharding.ShardID(900 + 10*round + n.id)
		n.h.join(filler, sharding.ReplicaID(filler)*10+10)
		n.fill(filler, 30, 100<<10)
		uncut := shards
		for deadline := time.Now().Add(10 * time.Second); len(uncut) > 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			for len(uncut) > 0 && isCut(uncut[0]) {
				uncut = uncut[1:]
			}
		}
		if len(uncut) == 0 {
			return
		}
	}
	n.h.tb.Fatal("did not happen: a cut")
}
