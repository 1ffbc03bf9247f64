package coordinator

import (
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/placement"
)

// Options configure a Coordinator. Zero fields take the default.
type Options struct {
	// Strategy says where replicas and leaders belong; default
	// placement.LeastLeaders.
	Strategy placement.Strategy
	// Replication and MinMembers hold while the metadata has no policy;
	// defaults meta.DefaultPolicy.
	Replication, MinMembers int
	// DeadAfter is how long a node must be out of reach, without a break and
	// as this coordinator sees it, to be taken for dead, while the policy does not
	// say; default 5 minutes.
	DeadAfter time.Duration
	// BackOff is how long a node that was slow, or came back, must give no such
	// trouble before it is given leaderships again; twice that after the next
	// time, and so on up to MaxBackOff, which without trouble also forgets it.
	// Defaults 10 seconds and 10 minutes.
	BackOff, MaxBackOff time.Duration
	// Fresh is how long a report counts as what is; default 3 seconds, six
	// reports.
	Fresh time.Duration
	// TransferTimeout is the time after which a leadership that did not move is
	// asked for again; default 3 seconds.
	TransferTimeout time.Duration
	// OperationTimeout ends an operation that gets nowhere; default 10 minutes.
	OperationTimeout time.Duration
	// MaxMovesInFlight bounds the replicas that are being built at one time,
	// MaxMovesPerNode those on one node; defaults 64 and 32. Each costs a copy
	// of its shard on the wire and on disk.
	MaxMovesInFlight, MaxMovesPerNode int
	// MaxTransfers bounds the leaderships on the move for balance; default 64.
	MaxTransfers int
}

func (o Options) withDefaults() Options {
	if o.Strategy == nil {
		o.Strategy = placement.LeastLeaders{}
	}
	o.Replication = or(o.Replication, meta.DefaultPolicy.Replication)
	o.MinMembers = or(o.MinMembers, meta.DefaultPolicy.MinMembers)
	o.DeadAfter = or(o.DeadAfter, 5*time.Minute)
	o.BackOff, o.MaxBackOff = or(o.BackOff, 10*time.Second), or(o.MaxBackOff, 10*time.Minute)
	o.Fresh = or(o.Fresh, 3*time.Second)
	o.TransferTimeout = or(o.TransferTimeout, 3*time.Second)
	o.OperationTimeout = or(o.OperationTimeout, 10*time.Minute)
	o.MaxMovesInFlight = or(o.MaxMovesInFlight, 64)
	o.MaxMovesPerNode = or(o.MaxMovesPerNode, 32)
	o.MaxTransfers = or(o.MaxTransfers, 64)
	return o
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Coordinator decides for a cluster while its node leads the metadata shard.
// What it remembers only saves it from asking twice: a new one, made where the
// metadata shard is led next, goes on from the metadata and the reports. It
// belongs to one goroutine at a time.
type Coordinator struct {
	opts  Options
	nodes map[sharding.NodeID]*heard
	// silent is since when a member has been out of reach.
	silent map[sharding.NodeID]time.Time
	// troubles are of hosts that were slow, or came and went.
	troubles map[sharding.NodeID]*trouble
	// leaders are the nodes that said last that they lead the shard, in the
	// highest term that anybody said so of; terms are the highest heard of.
	leaders map[sharding.ShardID]*heard
	terms   map[sharding.ShardID]sharding.Term
	fences  map[sharding.ShardID]fence
	// unled is since when a data shard has had no leader that is known.
	unled map[sharding.ShardID]time.Time
	// moving are the leaderships asked to move.
	moving map[sharding.ShardID]handover
	// pins are the leaderships that an operator moved.
	pins       map[sharding.ShardID]sharding.NodeID
	operations []*operation // at most MaxOperations, which the caller sees to
	// placements are those of placed, by shard: sorting them is worth keeping.
	placements []meta.Placement
	placed     *meta.View
	// collected is when no module was found that nothing needs.
	collected time.Time
}

// heard is the newest report of a node.
type heard struct {
	report Report
	at     time.Time
	shards map[sharding.ShardID]*ShardReport // of report
	stops  bool                              // some replica of it has stopped
	behind bool                              // some replica of it cannot read the log
}

// handover is a leadership that was asked to move.
type handover struct {
	to   sharding.NodeID
	term sharding.Term
	at   time.Time
}

// New makes a coordinator that knows nothing yet.
func New(o Options) *Coordinator {
	return &Coordinator{
		opts: o.withDefaults(), nodes: map[sharding.NodeID]*heard{}, silent: map[sharding.NodeID]time.Time{}, troubles: map[sharding.NodeID]*trouble{},
		leaders: map[sharding.ShardID]*heard{}, terms: map[sharding.ShardID]sharding.Term{}, unled: map[sharding.ShardID]time.Time{}, fences: map[sharding.ShardID]fence{},
		moving: map[sharding.ShardID]handover{}, pins: map[sharding.ShardID]sharding.NodeID{},
	}
}

// Input is what a step decides upon.
type Input struct {
	// Now never goes back.
	Now time.Time
	// View is the metadata with every command of earlier plans in it that will
	// ever take effect: the caller waits for their outcome before it steps
	// again.
	View *meta.View
	// Reports came in since the last step, this node's own among them; one that
	// was passed in before does no harm.
	Reports []Report
	// Reachable are the nodes that this one hears, itself included.
	Reachable map[sharding.NodeID]bool
	// Operations are new.
	Operations []Operation
}

// Plan is what a step wants done. It is the caller's.
type Plan struct {
	// Commands are for the metadata shard, one after the other; one that is
	// refused is no fault, the next step looks again.
	Commands [][]byte
	// Transfers go to the nodes From, at once or in the answer to their next
	// report.
	Transfers []Transfer
	// Rejoin are nodes that report but have no part in the metadata shard any
	// more: they were taken for dead, or were removed. They are told: those that
	// do not mean to leave call Join.
	Rejoin []sharding.NodeID
	// Troubles are the nodes that are given no leadership for balance, by name.
	// That is for people to see.
	Troubles []Trouble
	// Pending are the accepted orders that are not carried out yet, in a stable
	// order. That is for people to see.
	Pending []Pending
	// Progress is that of every operation; an operation that is Done is not heard
	// of again.
	Progress []Progress
}

// Step decides. Equal inputs to equal coordinators give equal plans.
func (c *Coordinator) Step(in Input) Plan {
	s := c.look(in)
	if _, created := in.View.Cluster(); !created {
		return s.plan
	}
	s.takeOperations(in.Operations)
	s.members()
	s.place()
	for _, sh := range s.shards {
		s.forget(sh)
	}
	s.repair()
	s.followOperations()
	s.transfers()
	s.collect()
	s.report()
	s.findPending()
	return s.plan
}
