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

	up        bool
	process   int // counts the starts of the process
	paused    int // until this step
	log       *wal.Log
	driver    *raftgroup.Driver
	machine   *machine
	executors map[sharding.ShardID]*simExecutor
	serves    uint64 // revision of the activations whose modules the node has loaded
	inbox     []arrival
	// turns counts the turns of the loop. If beats is set, the links send
	// heartbeats while the process is paused, as if only its loop were stuck.
	turns uint64
	beats bool
	// The state of failure detection: ticks of the process's own clock, the last
	// contact with each other node, and the nodes that it suspects.
	ticks  int64
	signs  []peer.Signs
	quiet  map[int]bool
	met    map[int]int // process of each other node from which something arrived last
	quorum map[sharding.ShardID]bool
	// events are the events that are not delivered to the executors yet. Executors
	// receive events in order, with a delay.
	events []func()
	// stalled: the process is paused until this step.
	stalled int
	// slow is the number of steps per tick. It differs between nodes, because
	// their clocks run at different speeds.
	slow int
	gov  governed
	// These fields are for a world whose entities send messages.
	store   *memStore
	pump    *deliver.Core
	trips   []trip
	number  uint64   // number of the latest trip
	parcels []parcel // parcels that have arrived and are not handled yet
	// learns is the step from which on the node knows where all replicas are.
	learns int
	// These fields are for a world with old disks. trial is the stale-disk
	// check of this incarnation until the check is complete. behind means that
	// the disk is an old copy.
	starts starts
	trial  *staledisk.Check
	copied *copied
	behind bool
}

// arrival is a frame from another node, or a heartbeat if frame is nil.
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

// start opens the data on the disk, and creates the groups that the disk does
// not have.
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
	n.executors = map[sharding.ShardID]*simExecutor{}
	for _, s := range n.w.shards {
		n.executors[s] = newLane(n, s)
	}
	p := &n.w.profile
	opts := raftgroup.Options{
		Self: n.w.name(n.id), Log: log, Machine: n.machine, Sink: n, Transport: n, Placement: n,
		AppliedIndex:    func(s sharding.ShardID) uint64 { return n.machine.shards[s].index },
		TruncateTicks:   p.cutTicks,
		MaxEntryBytes:   2 << 10,
		MaxRecordBytes:  p.record,
		MaxMessageBytes: p.message, MaxInflightMessages: 4, MaxInflightBytes: 1 << 20,
		MaxApplyBytes:       p.apply,
		MaxUncommittedBytes: p.uncommitted,
		RetainBytes:         1 << 40, // in this world, followers that fall behind get no snapshots
		MaxPinnedSegments:   2,
	}
	opts.WithoutSteady = n.w.raftOnly
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

// run is one pass of the node's loop: arrivals first, then a turn.
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
			n.executors[s].ring()
			n.executors[s].snapshot()
			n.executors[s].propose()
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
		n.executors[s].activate()
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
		n.executors[s].answer()
	}
	if n.w.rng.IntN(20) == 0 {
		n.machine.flush()
	}
	if n.w.rng.IntN(40) == 0 {
		n.machine.settle()
	}
	n.deceit()
}

// tell delivers some of the pending events to the executors.
func (n *node) tell() {
	for n.stalled <= n.w.step && len(n.events) > 0 && n.w.rng.IntN(10) > 0 {
		event := n.events[0]
		n.events = n.events[1:]
		event()
	}
}

// check ends the process if its log failed.
func (n *node) check(err error) {
	if err == nil || !n.up {
		return
	}
	if !errors.Is(err, disktest.ErrPowerCut) {
		n.w.fail("node %d: the log failed: %v", n.id, err)
	}
	n.crash(true)
}

// crash ends the process. A power cut also loses data that was not synced.
func (n *node) crash(power bool) {
	n.w.note("crash %d %v", n.id, power)
	n.w.count.crashes++
	n.tally()
	n.up = false
	n.inbox, n.events = nil, nil
	for _, s := range n.w.shards {
		n.executors[s].abandon()
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

// tally adds the counters of the process to those of the run.
func (n *node) tally() {
	if n.up {
		s := n.driver.Core().Stats()
		n.w.count.sleeps += int(s.Sleeps)
		n.w.count.wakes += int(s.Wakes)
		n.w.count.steady += int(s.Steady)
		n.w.count.resumed += int(s.SnapshotsResumed)
	}
}

// restart starts the process again. The power may fail during the start.
func (n *node) restart() {
	if !n.w.healing && n.w.rng.IntN(6) == 0 {
		n.disk.CutAfter(n.w.rng.IntN(8))
	}
	n.serves -= min(n.serves, n.w.rng.Uint64N(3)) // the node loads newer modules again
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
	n.events = append(n.events, func() { n.executors[shard].leader(term, self) })
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
	n.events = append(n.events, func() { n.executors[shard].dropped(fence, proposal) })
}

// ReadConfirmed implements raftgroup.Sink.
func (n *node) ReadConfirmed(shard sharding.ShardID, token, index uint64) {
	n.events = append(n.events, func() { n.executors[shard].confirmed(token, index) })
}

// ReadFailed implements raftgroup.Sink.
func (n *node) ReadFailed(shard sharding.ShardID, token uint64, err error) {
	n.events = append(n.events, func() { n.executors[shard].unconfirmed(token) })
}

func (w *World) name(id int) sharding.NodeID { return sharding.NodeID(fmt.Sprintf("n%d", id)) }

func (w *World) index(name sharding.NodeID) int { return int(name[1] - '0') }

// replica returns the ID of a shard's replica on a node. If placements are
// fixed, it is computed from shard and node. Otherwise it is the ID of the
// placed replica, or 0.
func (w *World) replica(s sharding.ShardID, node int) sharding.ReplicaID {
	if w.meta != nil {
		p, _ := w.meta.state.View().Placement(s)
		r, _ := p.ReplicaOn(w.name(node))
		return r.ID
	}
	return sharding.ReplicaID(uint64(s)*10 + uint64(node) + 1)
}

// IsUnknownReplica reports whether the node's view of the metadata shows that a
// replica is not placed. A replica of shard 0 that is newer than the view may
// be valid.
func (n *node) IsUnknownReplica(s sharding.ShardID, r sharding.ReplicaID) bool {
	if n.w.meta == nil {
		return false
	}
	_, placed := n.gov.view.ReplicaNode(s, r)
	return !placed && (s != sharding.MetaShard || r < n.gov.view.NextReplica())
}

// Locate returns the node of a replica. Some nodes learn where replicas are
// only after a while.
func (n *node) Locate(s sharding.ShardID, r sharding.ReplicaID) (sharding.NodeID, bool) {
	if n.w.meta != nil {
		return n.gov.view.ReplicaNode(s, r)
	}
	return n.w.name(int(r%10) - 1), n.w.step >= n.learns || n.w.healing
}

// sorted returns the keys of a map in order, because a run must not depend on
// the order of maps.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
