package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hostd/hostd/host/deliver"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/staledisk"
)

// node is one simulated process with its disk.
type node struct {
	w    *World
	id   int
	disk *disktest.Crashable

	up      bool
	process int // counts its starts
	paused  int // until this step
	log     *wal.Log
	driver  *raftgroup.Driver
	machine *machine
	lanes   map[sharding.ShardID]*lane
	serves  uint64 // the binding revision of the modules that it has loaded
	inbox   []arrival
	// turns is how often the loop has gone round. Where beats is set, the links
	// live while the process is paused: its loop stands still.
	turns uint64
	beats bool
	// ticks are the process's own, signs what it saw of each other node, and
	// quiet are those that count as silent: what the process does that pings.
	ticks  int64
	signs  []peer.Signs
	quiet  map[int]bool
	met    map[int]int // the start of each other node's process that was heard last
	quorum map[sharding.ShardID]bool
	// events wait for the lanes, which learn everything a little later than it
	// happens, in order.
	events []func()
	// stalled: the lanes are busy with something until this step.
	stalled int
	// slow is how many steps the node's tick takes: clocks differ.
	slow int
	gov  governed
	// Of a world whose entities send.
	store   *memStore
	pump    *deliver.Core
	trips   []trip
	number  uint64   // of the last trip
	parcels []parcel // that have arrived
	// learns: from this step on it knows where all replicas are.
	learns int
	// Of a world whose disks go back in time. trial: others have not vouched for
	// this start yet. behind: its disk is an older one.
	starts starts
	trial  *staledisk.Check
	copied *copied
	behind bool
}

// arrival is what came from another node: a frame, or a ping if it is nil.
type arrival struct {
	from  int
	frame []byte
	turns uint64
}

func newNode(w *World, id int) *node {
	n := &node{w: w, id: id, slow: []int{4, 4, 4, 2, 12}[w.rng.IntN(5)], disk: disktest.NewCrashable(rand.New(rand.NewPCG(w.Seed, uint64(id)+100)))}
	if id > 0 && w.profile.blind > 0 {
		n.learns = w.rng.IntN(w.profile.blind)
	}
	n.store = newMemStore(w)
	n.machine = newMachine(n)
	return n
}

// start opens what the disk holds; groups that it does not hold are created.
func (n *node) start() error {
	log, err := wal.Open(n.disk, "wal", wal.Options{
		SegmentBytes: n.w.profile.segment,
		Now:          func() time.Time { return time.Unix(0, int64(n.w.step)*int64(20*time.Millisecond)) },
		Rand:         n.w.rng.Uint64,
	})
	if err != nil {
		return err
	}
	rec, err := recovery.Recover(log)
	if err != nil {
		return err
	}
	machine, err := n.machine.reopen(rec.Watermark, rec.Generations(n.disk, "snapshots"))
	if err != nil {
		return err
	}
	n.machine = machine
	if n.w.dir != "" || n.w.messages != nil {
		if n.machine.product, err = n.openProduct(rec); err != nil {
			return err
		}
	}
	n.lanes = map[sharding.ShardID]*lane{}
	for _, s := range n.w.shards {
		n.lanes[s] = newLane(n, s)
	}
	p := &n.w.profile
	opts := raftgroup.Options{
		Self: n.w.name(n.id), Log: log, Machine: n.machine, Sink: n, Transport: n, Locate: n.locate, IsForeign: n.strange,
		AppliedIndex:    func(s sharding.ShardID) uint64 { return n.machine.shards[s].index },
		TruncateTicks:   p.cutTicks,
		MaxEntryBytes:   2 << 10,
		MaxRecordBytes:  p.record,
		MaxMessageBytes: p.message, MaxInflightMessages: 4, MaxInflightBytes: 1 << 20,
		MaxApplyBytes:       p.apply,
		MaxUncommittedBytes: p.uncommitted,
		RetainBytes:         1 << 40, // followers that are behind are not helped by snapshots
		MaxPinnedSegments:   2,
	}
	opts.AwaitAttestation = n.w.older.often > 0
	if p.snapshots {
		opts.Snapshots, opts.SnapshotFS, opts.SnapshotDir = n.machine, n.disk, "snapshots"
		opts.RetainBytes, opts.RetainTotalBytes = p.retain, p.retainTotal
		opts.MaxSnapshotsOut, opts.MaxSnapshotsQueued = 2, 2
	}
	if n.driver, err = raftgroup.NewDriver(rec, opts); err != nil {
		return err
	}
	n.process++
	n.log, n.inbox, n.events, n.up = log, nil, nil, true
	n.store.running = true
	n.startPump()
	n.turns, n.ticks, n.signs = 0, 0, make([]peer.Signs, len(n.w.nodes))
	n.quiet, n.met, n.quorum = map[int]bool{}, map[int]int{}, map[sharding.ShardID]bool{}
	if n.w.meta != nil {
		n.gov.begin()
		n.beginProbation()
		return nil
	}
	return n.create(rec)
}

func (n *node) create(rec *recovery.Recovered) error {
	var configs []raftgroup.GroupConfig
	for _, s := range n.w.shards {
		if !slices.ContainsFunc(rec.Groups, func(g recovery.Replica) bool { return g.Shard == s }) {
			configs = append(configs, raftgroup.GroupConfig{Shard: s, Replica: n.w.replica(s, n.id), Voters: n.w.firstVoters(s)})
		}
	}
	if len(configs) == 0 {
		return nil
	}
	err, _ := n.driver.Create(configs)
	return err
}

// run is one pass of the node's loop: messages, then a turn.
func (n *node) run() {
	if !n.up {
		return
	}
	if n.paused > n.w.step {
		n.stand()
		return
	}
	n.turns++
	core := n.driver.Core()
	if n.w.rng.IntN(n.slow) == 0 && !n.w.healing || n.w.healing && n.w.step%n.slow == 0 {
		n.check(n.driver.Tick())
		n.ping()
	}
	if !n.up {
		return
	}
	for _, a := range n.inbox {
		n.hear(a)
		if a.frame == nil {
			continue
		}
		step := func(m wire.Message) { core.Step(n.w.name(a.from), m) }
		if err := wire.DecodeFrame(a.frame, step); err != nil {
			n.w.fail("node %d got a bad frame: %v", n.id, err)
		}
	}
	n.inbox = nil
	if forged := core.Stats().MessagesForged; forged > 0 && n.w.meta == nil {
		n.w.fail("node %d refused a message that another node sent", n.id)
	}
	for _, s := range n.w.shards {
		if n.stalled <= n.w.step {
			n.lanes[s].ring()
			n.lanes[s].snapshot()
			n.lanes[s].propose()
		}
	}
	if n.up && core.HasWork() && n.w.rng.IntN(8) > 0 {
		n.check(n.driver.Turn())
	}
	if !n.up {
		return
	}
	if n.serves < n.w.bound && (n.w.healing || n.w.rng.IntN(30) == 0) {
		n.serves = n.w.bound
		n.w.note("serves %d %d", n.id, n.serves)
	}
	for _, s := range n.w.shards {
		n.lanes[s].activate()
	}
	if n.w.profile.snapshots {
		n.ship()
	}
	n.machine.pump(n.w.rng.IntN(4))
	if !n.up {
		return
	}
	n.runPump()
	if n.prove(); !n.up {
		return
	}
	if n.w.meta != nil && n.trial == nil {
		if n.govern(); !n.up {
			return
		}
	}
	n.tell()
	for _, s := range n.w.shards {
		n.lanes[s].answer()
	}
	if n.w.rng.IntN(20) == 0 {
		n.machine.flush()
	}
	if n.w.rng.IntN(40) == 0 {
		n.machine.settle()
	}
	n.deceit()
}

// tell lets the lanes know of some of what happened.
func (n *node) tell() {
	for n.stalled <= n.w.step && len(n.events) > 0 && n.w.rng.IntN(10) > 0 {
		event := n.events[0]
		n.events = n.events[1:]
		event()
	}
}

// check ends the process when its log failed.
func (n *node) check(err error) {
	if err == nil || !n.up {
		return
	}
	if !errors.Is(err, disktest.ErrPowerCut) {
		n.w.fail("node %d: the log failed: %v", n.id, err)
	}
	n.crash(true)
}

// crash ends the process. With the power goes what was not synced.
func (n *node) crash(power bool) {
	n.w.note("crash %d %v", n.id, power)
	n.w.count.crashes++
	n.tally()
	n.up = false
	n.inbox, n.events = nil, nil
	for _, s := range n.w.shards {
		n.lanes[s].abandon()
	}
	n.machine.product.close(n.w)
	n.pump, n.trips, n.parcels = nil, nil, nil
	n.store.crash(power)
	if power {
		n.disk.Crash()
		n.keepCopy()
	} else {
		n.disk.Kill()
	}
}

// tally adds what the process counted.
func (n *node) tally() {
	if n.up {
		s := n.driver.Core().Stats()
		n.w.count.sleeps += int(s.Sleeps)
		n.w.count.wakes += int(s.Wakes)
		n.w.count.resumed += int(s.SnapshotsResumed)
	}
}

// restart starts the process again. The power may go while it does.
func (n *node) restart() {
	if !n.w.healing && n.w.rng.IntN(6) == 0 {
		n.disk.CutAfter(n.w.rng.IntN(8))
	}
	n.serves -= min(n.serves, n.w.rng.Uint64N(3)) // it loads them again
	before := n.machine
	err := n.start()
	if err == nil {
		n.w.note("start %d", n.id)
		return
	}
	n.up = false
	if n.machine != before {
		n.machine.product.close(n.w)
	}
	if errors.Is(err, disktest.ErrPowerCut) {
		n.machine = before
		n.disk.Crash()
		n.store.crash(true)
		n.w.count.crashes++
		return
	}
	n.w.fail("I10: node %d does not start after a crash: %v", n.id, err)
}

// Send implements raftgroup.Transport.
func (n *node) Send(to sharding.NodeID, frame []byte) { n.w.send(n.id, n.w.index(to), frame) }

// LeaderChanged implements raftgroup.Sink.
func (n *node) LeaderChanged(shard sharding.ShardID, term sharding.Term, leader sharding.ReplicaID, self bool) {
	n.w.note("leader %d %d %d %d %v", n.id, shard, term, leader, self)
	if self {
		n.w.leads(n, shard, term)
	}
	n.events = append(n.events, func() { n.lanes[shard].leader(term, self) })
}

// QuorumChanged implements raftgroup.Sink.
func (n *node) QuorumChanged(shard sharding.ShardID, ok bool) {
	n.w.note("quorum %d %d %v", n.id, shard, ok)
	if was, told := n.quorum[shard]; told && was == ok {
		n.w.fail("node %d shard %d: told twice that its quorum is %v", n.id, shard, ok)
	}
	n.quorum[shard] = ok
}

// ProposalDropped implements raftgroup.Sink.
func (n *node) ProposalDropped(shard sharding.ShardID, fence sharding.Term, proposal uint64, err error) {
	n.events = append(n.events, func() { n.lanes[shard].dropped(fence, proposal) })
}

// ReadConfirmed implements raftgroup.Sink.
func (n *node) ReadConfirmed(shard sharding.ShardID, token, index uint64) {
	n.events = append(n.events, func() { n.lanes[shard].confirmed(token, index) })
}

// ReadFailed implements raftgroup.Sink.
func (n *node) ReadFailed(shard sharding.ShardID, token uint64, err error) {
	n.events = append(n.events, func() { n.lanes[shard].unconfirmed(token) })
}

func (w *World) name(id int) sharding.NodeID { return sharding.NodeID(fmt.Sprintf("n%d", id)) }

func (w *World) index(name sharding.NodeID) int { return int(name[1] - '0') }

// replica numbers the replicas: shard and node, from 1. Where they move it is
// the one that the node holds or is to hold, 0 for none.
func (w *World) replica(s sharding.ShardID, node int) sharding.ReplicaID {
	if w.meta != nil {
		p, _ := w.meta.state.View().Placement(s)
		r, _ := p.ReplicaOn(w.name(node))
		return r.ID
	}
	return sharding.ReplicaID(uint64(s)*10 + uint64(node) + 1)
}

// strange says of a replica that the metadata which this node has would place
// it. Of shard 0 a later one may lead.
func (n *node) strange(s sharding.ShardID, r sharding.ReplicaID) bool {
	if n.w.meta == nil {
		return false
	}
	_, placed := n.gov.view.ReplicaNode(s, r)
	return !placed && (s != sharding.MetaShard || r < n.gov.view.NextReplica())
}

// locate knows where replicas are, on some nodes only after a while.
func (n *node) locate(s sharding.ShardID, r sharding.ReplicaID) (sharding.NodeID, bool) {
	if n.w.meta != nil {
		return n.gov.view.ReplicaNode(s, r)
	}
	return n.w.name(int(r%10) - 1), n.w.step >= n.learns || n.w.healing
}

// sorted returns a map's keys in order: nothing may depend on the map's own.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
