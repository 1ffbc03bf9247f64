package replicas_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// every is the number of disk operations between two power cuts that tests try.
// It is greater than 1 because each power cut costs a start of the store.
var every = flag.Int("every", 25, "cut the power at every n-th operation of the disk; 1 takes a minute")

// world is several nodes with the real driver, log, state machine and store,
// all in one goroutine. The disk under logs and snapshots loses unsynced data;
// the store's directory is copied as a crash would leave it. The same seed
// makes the same run, however busy the machine is.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	nodes []*node
	cut   map[[2]int]bool
	// shipping are the snapshots in flight.
	shipping []shipment
	// sent counts the accepted snapshots, and refused the rejected snapshots.
	sent, refused int
	// hold keeps snapshots from arriving.
	hold bool
	// refuse makes snapshots fail.
	refuse bool
	// revive restarts nodes whose power was cut; crashes counts the cuts.
	revive  bool
	crashes int
	opts    func(*raftgroup.Options)
	// broken wraps each stream; bytes is the total size of all streams.
	broken func(io.Reader) io.Reader
	bytes  int64
	// tap receives every frame on its way to a node.
	tap func(to *node, m sentFrame)
}

type shipment struct {
	from, to int
	o        *raftgroup.Outgoing
}

// node is one node. It implements the state machine, sink and transport of its
// driver.
type node struct {
	w       *world
	id      int
	fs      *disktest.Crashable
	base    string
	starts  int // number of starts of the process; it names the store's directory
	up      bool
	lazy    bool // its machine writes no batches
	idle    bool // its machine does no background work
	log     *wal.Log
	store   *store.Store
	machine *eventlog.Machine
	meta    *registry
	driver  *raftgroup.Driver
	leads   map[sharding.ShardID]sharding.Term
	ready   map[sharding.ShardID]sharding.Term // term of the last applied no-op
	inbox   []sentFrame
	failed  []error // failed apply results
}

type sentFrame struct {
	from  int
	frame []byte
}

func newWorld(t *testing.T, nodes int, seed uint64) *world {
	cryptotest.SetGlobalRandom(t, seed) // raft draws its election timeouts from this generator
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 99)), cut: map[[2]int]bool{}}
	for i := range nodes {
		w.nodes = append(w.nodes, &node{w: w, id: i, base: filepath.Join(t.TempDir(), fmt.Sprint("n", i)), fs: disktest.NewCrashable(rand.New(rand.NewPCG(seed, uint64(i))))})
	}
	t.Cleanup(w.stop)
	return w
}

func (w *world) start() {
	w.t.Helper()
	for _, n := range w.nodes {
		if err := n.start(); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) stop() {
	for _, n := range w.nodes {
		if n.up {
			n.end()
		}
	}
}

func name(i int) sharding.NodeID { return sharding.NodeID(fmt.Sprint("n", i)) }

// The last digit of a replica ID names its node.
func home(r sharding.ReplicaID) int { return int(r % 10) }

// homes is the placement of all replicas.
type homes struct{}

func (homes) Locate(_ sharding.ShardID, r sharding.ReplicaID) (sharding.NodeID, bool) {
	return name(home(r)), true
}

func (homes) IsUnknownReplica(sharding.ShardID, sharding.ReplicaID) bool { return false }

func (n *node) dir() string { return filepath.Join(n.base, fmt.Sprint("store", n.starts)) }

const memTable = 512 << 10

func (n *node) start() (err error) {
	defer func() {
		if err != nil && n.store != nil {
			n.store.Close()
			n.store = nil
		}
	}()
	n.store = nil
	n.log, err = wal.Open(n.fs, "wal", wal.Options{SegmentBytes: 256 << 10, Rand: func() uint64 { return 5 }})
	if err != nil {
		return err
	}
	rec, err := recovery.Recover(n.log)
	if err != nil {
		return err
	}
	if n.store, err = store.Open(n.dir(), store.Options{Watermark: rec.Watermark, MemTableBytes: memTable}); err != nil {
		return err
	}
	n.awaitTables()
	n.meta = newRegistry()
	generations := rec.Generations(n.fs, "snapshots")
	if n.machine, err = eventlog.Open(n.store, rec.Watermark, eventlog.Options{Metadata: n.meta, Generations: generations, MaxEntityRows: 8}); err != nil {
		return err
	}
	last := map[sharding.ShardID]uint64{}
	for _, g := range rec.Groups {
		last[g.Shard] = g.LastIndex
	}
	applied := map[sharding.ShardID]uint64{}
	for _, g := range rec.Groups {
		applied[g.Shard], _ = n.machine.Applied(g.Shard)
	}
	if err := n.machine.SetRecoveryTargets(last); err != nil {
		return err
	}
	n.leads, n.ready, n.inbox = map[sharding.ShardID]sharding.Term{}, map[sharding.ShardID]sharding.Term{}, nil
	opts := raftgroup.Options{
		Self: name(n.id), Log: n.log, Machine: n, Sink: n, Transport: n, Snapshots: n,
		SnapshotFS: n.fs, SnapshotDir: "snapshots",
		Placement:      homes{},
		AppliedIndex:   func(s sharding.ShardID) uint64 { return applied[s] },
		MaxRecordBytes: 32 << 10, RetainBytes: 1, TruncateTicks: 2,
	}
	if n.w.opts != nil {
		n.w.opts(&opts)
	}
	if n.driver, err = raftgroup.NewDriver(rec, opts); err != nil {
		return err
	}
	n.up = true
	return nil
}

// end ends the node's process and closes its store.
func (n *node) end() {
	n.up = false
	kept := n.w.shipping[:0]
	for _, s := range n.w.shipping {
		if s.from == n.id {
			s.o.Release()
		} else {
			kept = append(kept, s)
		}
	}
	n.w.shipping = kept
	for _, o := range n.driver.TakeSnapshots() {
		o.Release()
	}
	if err := n.store.Close(); err != nil {
		n.w.t.Error(err)
	}
	n.store = nil
}

// crash cuts the node's power. The store keeps its tables and an arbitrary part
// of the memtables.
func (n *node) crash() {
	n.w.t.Helper()
	from := n.dir()
	n.starts++
	copyStore(n.w.t, from, n.dir())
	for _, l := range n.memtables() {
		if n.w.rng.IntN(2) == 0 {
			if err := os.Remove(l); err != nil {
				n.w.t.Fatal(err)
			}
		}
	}
	n.end()
	n.fs.Crash()
}

// lost handles the power cut of a node.
func (n *node) lost() {
	n.w.t.Helper()
	n.crash()
	n.w.crashes++
	if n.w.revive {
		n.restart()
	}
}

// restart starts a crashed node.
func (n *node) restart() {
	n.w.t.Helper()
	if err := n.start(); err != nil {
		n.w.t.Fatalf("node %d: %v", n.id, err)
	}
}

// Apply implements raftgroup.StateMachine; it applies the entries at once.
func (n *node) Apply(s sharding.ShardID, entries []journal.Committed) {
	n.told(n.machine.Apply(s, entries))
}
func (n *node) told(vs []eventlog.ApplyResult) {
	for _, v := range vs {
		if v.NoOp {
			n.ready[v.Shard] = v.Term
		}
		if v.Err != nil {
			n.failed = append(n.failed, v.Err)
		}
	}
}
func (n *node) Backlog() int64                                        { return n.machine.UnflushedBytes() + n.machine.Waiting() }
func (n *node) Durable(d map[sharding.ShardID]uint64) uint64          { return n.machine.Durable(d) }
func (n *node) StateIndex(s sharding.ShardID) (uint64, sharding.Term) { return n.machine.StateIndex(s) }
func (n *node) Pin(s sharding.ShardID) (statefile.Pinned, error)      { return n.machine.Pin(s) }
func (n *node) Drop(s sharding.ShardID, next uint32)                  { n.machine.Drop(s, next) }
func (n *node) Install(s sharding.ShardID, g uint32, in statefile.Install) {
	n.machine.Install(s, g, in)
}

// LeaderChanged implements raftgroup.Sink.
func (n *node) LeaderChanged(s sharding.ShardID, term sharding.Term, _ sharding.ReplicaID, self bool) {
	delete(n.leads, s)
	if self {
		n.leads[s] = term
	}
}
func (n *node) QuorumChanged(sharding.ShardID, bool)                           {}
func (n *node) ProposalDropped(sharding.ShardID, sharding.Term, uint64, error) {}
func (n *node) ReadConfirmed(sharding.ShardID, uint64, uint64)                 {}
func (n *node) ReadFailed(sharding.ShardID, uint64, error)                     {}

// Send implements raftgroup.Transport.
func (n *node) Send(to sharding.NodeID, frame []byte) {
	for _, other := range n.w.nodes {
		if name(other.id) == to && other.up && !n.w.cut[[2]int{n.id, other.id}] {
			m := sentFrame{n.id, frame}
			other.inbox = append(other.inbox, m)
			if n.w.tap != nil {
				n.w.tap(other, m)
			}
		}
	}
}

// flush writes everything applied to the store.
func (n *node) flush() {
	wrote := false
	for range 100 {
		b := n.machine.TakeBatch()
		if b == nil {
			break
		}
		if err := b.Write(n.store); err != nil {
			n.w.t.Fatal(err)
		}
		n.machine.MarkFlushed(b)
		wrote = true
	}
	if wrote {
		n.awaitTables()
	}
}

// awaitTables waits until the store's own goroutines have written full
// memtables as tables, so that their timing does not influence the run.
func (n *node) awaitTables() {
	for deadline := time.Now().Add(time.Minute); len(n.memtables()) > 1; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			n.w.t.Fatal("the store makes no tables of its memtables")
		}
	}
}

// memtables returns the files of the store's memtables: the active memtable and
// the memtables that are being written as tables.
func (n *node) memtables() []string {
	files, err := filepath.Glob(filepath.Join(n.dir(), "*.mem"))
	if err != nil {
		n.w.t.Fatal(err)
	}
	return files
}

// run is one pass of a node. An error means that its disk has failed.
func (n *node) run(tick bool) error {
	if tick {
		if err := n.driver.Tick(); err != nil {
			return err
		}
	}
	core := n.driver.Core()
	for _, m := range n.inbox {
		from := name(m.from)
		core.PeerAlive(from)
		if err := wire.DecodeFrame(m.frame, func(m wire.Message) { core.Step(from, m) }); err != nil {
			n.w.t.Fatal(err)
		}
	}
	n.inbox = nil
	for range 3 {
		if core.HasWork() {
			if err := n.driver.Turn(); err != nil {
				return err
			}
		}
	}
	for _, o := range n.driver.TakeSnapshots() {
		n.w.shipping = append(n.w.shipping, shipment{n.id, home(o.To), o})
	}
	if !n.idle {
		for range 3 {
			s := n.machine.Work()
			n.told(s.Verdicts)
			if err := n.machine.Err(); err != nil {
				return err
			}
		}
	}
	if !n.lazy && n.w.rng.IntN(2) == 0 {
		n.flush()
	}
	return nil
}

// step is one pass of everything.
func (w *world) step() {
	w.t.Helper()
	for _, i := range w.rng.Perm(len(w.nodes)) {
		n := w.nodes[i]
		if n.up {
			if err := n.run(w.rng.IntN(2) == 0); err != nil {
				if !errors.Is(err, disktest.ErrPowerCut) {
					w.t.Fatalf("node %d: %v", n.id, err)
				}
				n.lost()
			}
		}
	}
	if w.hold {
		return
	}
	under := w.shipping
	w.shipping = nil
	for _, s := range under {
		w.deliver(s)
	}
}

func (w *world) deliver(s shipment) {
	from, to := w.nodes[s.from], w.nodes[s.to]
	report := func(err error) {
		if err == nil {
			w.sent++
		} else {
			w.refused++
		}
		if from.up {
			from.driver.ReportSnapshot(s.o, err)
		}
	}
	if w.refuse || !to.up || w.cut[[2]int{s.from, s.to}] {
		s.o.Release()
		report(errors.New("nobody is there"))
		return
	}
	if err := w.carry(s.o, name(s.from), to, report); err != nil {
		report(err)
	}
}

// until runs steps until the condition holds.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for i := 0; !ok(); i++ {
		if i > 20000 {
			w.t.Fatalf("did not happen: %s", what)
		}
		if i > 2000 && i%1000 == 0 {
			time.Sleep(time.Millisecond) // gives the store's own goroutines time
		}
		w.step()
	}
}

// isolate cuts all links of the nodes.
func (w *world) isolate(nodes ...int) {
	clear(w.cut)
	for _, a := range nodes {
		for b := range w.nodes {
			if a != b {
				w.cut[[2]int{a, b}], w.cut[[2]int{b, a}] = true, true
			}
		}
	}
}

// create creates a group on the nodes of the voters.
func (w *world) create(s sharding.ShardID, voters ...sharding.ReplicaID) {
	w.t.Helper()
	for _, v := range voters {
		w.join(s, v, voters...)
	}
}

// join creates a replica on its node.
func (w *world) join(s sharding.ShardID, r sharding.ReplicaID, first ...sharding.ReplicaID) {
	w.t.Helper()
	if err, _ := w.nodes[home(r)].driver.Create([]raftgroup.GroupConfig{{Shard: s, Replica: r, Voters: first}}); err != nil {
		w.t.Fatal(err)
	}
}

// leader runs steps until a node leads the shard and has applied the no-op of
// its term.
func (w *world) leader(s sharding.ShardID) (at *node, term sharding.Term) {
	w.t.Helper()
	w.until(fmt.Sprintf("a leader of shard %d", s), func() bool {
		for _, n := range w.nodes {
			if t := n.leads[s]; n.up && t != 0 && n.ready[s] == t && t > term {
				at, term = n, t
			}
		}
		return at != nil
	})
	return at, term
}

// change runs steps until a membership change is done.
func (w *world) change(s sharding.ShardID, c raftgroup.Change, done func(raftgroup.Status) bool) {
	w.t.Helper()
	w.until("change of members", func() bool {
		n, term := w.leader(s)
		st, err := n.driver.Core().Status(s)
		if err != nil || done(st) {
			return err == nil
		}
		n.driver.Core().ChangeMembers(s, term, c)
		w.step()
		return false
	})
}

// files returns the snapshot files on a node's disk. The power may fail during
// the listing itself.
func (n *node) files() []string {
	names, err := n.fs.List("snapshots")
	if errors.Is(err, disktest.ErrPowerCut) {
		n.lost()
		names, err = n.fs.List("snapshots")
	}
	if err != nil {
		n.w.t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(s string) bool { return filepath.Ext(s) != ".snapshot" })
}
