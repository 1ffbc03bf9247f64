package raftgroup

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// drill runs several nodes in one goroutine. Their clocks tick together, and
// all consequences of a tick complete before the next. Frames are delivered
// unless their link is cut.
type drill struct {
	t     testing.TB
	nodes []*drilled
	cut   map[[2]int]bool
	beats int
	// contain makes a panic in a group fail only that group.
	contain bool
	tune    func(*Options) // may be nil
}

type drilled struct {
	d         *drill
	i         int
	up        bool
	fs        *disktest.Crashable
	driver    *Driver
	machine   *machine
	sink      *sink
	inbox     []delivery
	last      []int // tick at which each other node was last seen alive
	sent      int   // number of frames sent
	bytes     int
	probation bool // nodes start awaiting attestation
	withheld  []sharding.ShardID
	blind     bool // nodes do not know on which nodes replicas live
	failed    []failure
}

// newDrill creates nodes that all hold a voter of each shard.
func newDrill(t testing.TB, nodes, shards int) *drill {
	d := newEmptyDrill(t, nodes)
	d.fill(shards)
	return d
}

// fill creates a voter of each shard on every node.
func (d *drill) fill(shards int) {
	for _, n := range d.nodes {
		var configs []GroupConfig
		for s := 1; s <= shards; s++ {
			configs = append(configs, GroupConfig{Shard: sharding.ShardID(s), Replica: d.replica(s, n.i), Voters: d.replicas(s)})
		}
		n.create(configs...)
	}
}

func newEmptyDrill(t testing.TB, nodes int) *drill {
	d := &drill{t: t, cut: map[[2]int]bool{}}
	d.begin(nodes)
	return d
}

// begin starts empty nodes.
func (d *drill) begin(nodes int) {
	for i := range nodes {
		n := &drilled{d: d, i: i, up: true, machine: newMachine(), last: make([]int, nodes)}
		n.fs = disktest.NewCrashable(rand.New(rand.NewPCG(1, uint64(i))))
		n.start()
		d.nodes = append(d.nodes, n)
	}
}

// start starts the node from its disk.
func (n *drilled) start() {
	n.d.t.Helper()
	log, err := wal.Open(n.fs, "wal", wal.Options{Rand: func() uint64 { return 7 }})
	if err != nil {
		n.d.t.Fatal(err)
	}
	rec, err := recovery.Recover(log)
	if err != nil {
		n.d.t.Fatal(err)
	}
	n.machine, n.sink = n.machine.reopen(rec.Watermark), newSink()
	opts := Options{Self: n.d.name(n.i), Log: log, Machine: n.machine, Sink: n.sink, Transport: n, Placement: placement{locate: n.locate}, AwaitAttestation: n.probation, HeldShards: n.withheld}
	n.failed = nil
	if n.d.tune != nil {
		n.d.tune(&opts)
	}
	if n.d.contain {
		opts.OnGroupFailed = func(s sharding.ShardID, err error) { n.failed = append(n.failed, failure{s, err}) }
	}
	n.driver, err = NewDriver(rec, opts)
	if err != nil {
		n.d.t.Fatal(err)
	}
}

// restart kills the process and starts it again at once.
func (n *drilled) restart() {
	n.fs.Kill()
	n.inbox = nil
	n.start()
}

func (d *drill) name(i int) sharding.NodeID { return sharding.NodeID(fmt.Sprint("n", i)) }

func (d *drill) replica(shard, node int) sharding.ReplicaID {
	return sharding.ReplicaID(shard*10 + node)
}

func (d *drill) replicas(shard int) (ids []sharding.ReplicaID) {
	for i := range d.nodes {
		ids = append(ids, d.replica(shard, i))
	}
	return ids
}

func (n *drilled) create(configs ...GroupConfig) {
	if err, _ := n.driver.Create(configs); err != nil {
		n.d.t.Fatal(err)
	}
}

func (n *drilled) locate(shard sharding.ShardID, r sharding.ReplicaID) (sharding.NodeID, bool) {
	if n.blind {
		return "", false
	}
	return nodeOf(shard, r)
}

// Send implements Transport.
func (n *drilled) Send(to sharding.NodeID, frame []byte) {
	n.sent++
	n.bytes += len(frame)
	other := n.d.nodes[int(to[1]-'0')]
	if other.up && !n.d.cut[[2]int{n.i, other.i}] {
		other.inbox = append(other.inbox, delivery{n.d.name(n.i), frame})
	}
}

// beat ticks all clocks once.
func (d *drill) beat() {
	d.beats++
	for _, n := range d.nodes {
		if n.up {
			n.hear()
			if err := n.driver.Tick(); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	d.settle()
}

// hear reports the other running nodes as alive, or as suspected if they are
// silent.
func (n *drilled) hear() {
	for i, o := range n.d.nodes {
		switch {
		case i == n.i:
		case o.up && !n.d.cut[[2]int{i, n.i}]:
			n.last[i] = n.d.beats
			n.driver.Core().PeerAlive(n.d.name(i))
		case n.d.beats-n.last[i] == 7:
			n.driver.Core().PeerSuspected(n.d.name(i))
		}
	}
}

// settle delivers frames and runs turns until no work is left.
func (d *drill) settle() {
	for busy := true; busy; {
		busy = false
		for _, n := range d.nodes {
			inbox := n.inbox
			n.inbox = nil
			if !n.up {
				continue
			}
			for _, f := range inbox {
				step := func(m wire.Message) { n.driver.Core().Step(f.from, m) }
				if err := wire.DecodeFrame(f.frame, step); err != nil {
					d.t.Fatal(err)
				}
			}
			for n.driver.Core().HasWork() {
				busy = true
				if err := n.driver.Turn(); err != nil {
					d.t.Fatal(err)
				}
			}
		}
	}
}

// until ticks until a condition holds and returns the number of ticks.
func (d *drill) until(what string, limit int, ok func() bool) int {
	d.t.Helper()
	for i := 0; ; i++ {
		if ok() {
			return i
		}
		if i == limit {
			d.t.Fatalf("not within %d beats: %s", limit, what)
		}
		d.beat()
	}
}

// leader returns the running node that leads a shard in the highest term, or
// nil.
func (d *drill) leader(shard int) (at *drilled) {
	var term sharding.Term
	for _, n := range d.nodes {
		if l := n.sink.leader(sharding.ShardID(shard)); n.up && l.Self && l.Term > term {
			at, term = n, l.Term
		}
	}
	return at
}

// led reports whether each of the first shards has a leader among the running
// nodes.
func (d *drill) led(shards int) bool {
	for s := 1; s <= shards; s++ {
		if d.leader(s) == nil {
			return false
		}
	}
	return true
}

// lead makes a node the leader of a shard.
func (d *drill) lead(shard, node int) *drilled {
	d.t.Helper()
	n := d.nodes[node]
	d.until("leadership", 60, func() bool {
		if at := d.leader(shard); at != nil && at != n {
			if err := at.driver.Core().TransferLeader(sharding.ShardID(shard), d.replica(shard, node)); err != nil {
				d.t.Fatal(err)
			}
			d.settle()
		}
		return d.leader(shard) == n
	})
	return n
}

// write proposes data and requires that the given nodes apply it.
func (d *drill) write(shard int, data string, on ...int) {
	d.t.Helper()
	s := sharding.ShardID(shard)
	n := d.leader(shard)
	if n == nil {
		d.t.Fatalf("shard %d has no leader", shard)
	}
	if err := n.driver.Core().Propose(s, n.sink.leader(s).Term, 1, []byte(data)); err != nil {
		d.t.Fatal(err)
	}
	d.settle()
	d.until("write of "+data, 12, func() bool {
		for _, i := range on {
			if all := d.nodes[i].machine.data(s); len(all) == 0 || all[len(all)-1] != data {
				return false
			}
		}
		return true
	})
}
