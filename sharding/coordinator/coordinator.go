package coordinator

import (
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/placement"
)

// Options configure a Coordinator. Zero fields get the default.
type Options struct {
	// Strategy decides where replicas and leaders belong; default
	// placement.LeastLeaders.
	Strategy placement.Strategy
	// Replication and MinMembers apply while the metadata has no policy;
	// default meta.DefaultPolicy.
	Replication, MinMembers int
	// This coordinator considers a node dead after the node has been
	// continuously unreachable for DeadAfter. It applies if the policy does not
	// set a value; default 5 minutes.
	DeadAfter time.Duration
	// BackOff is the time for which a node that was slow, or that came back,
	// must be stable before it is given leaderships again. It doubles each
	// time, up to MaxBackOff, and is reset once the node has been stable for
	// MaxBackOff. Defaults: 10 seconds and 10 minutes.
	BackOff, MaxBackOff time.Duration
	// Fresh is the time for which a report is considered current; default 3
	// seconds, which is six reports.
	Fresh time.Duration
	// TransferTimeout is the time to wait for a leadership transfer before it
	// is requested again; default 3 seconds.
	TransferTimeout time.Duration
	// OperationTimeout ends an operation that makes no progress; default 10
	// minutes.
	OperationTimeout time.Duration
	// MaxMovesInFlight limits the replicas that are being built at a time in the
	// cluster, and MaxMovesPerNode the replicas that are being built on one node;
	// defaults 64 and 32. Each of them copies its shard over the network and to
	// disk.
	MaxMovesInFlight, MaxMovesPerNode int
	// MaxTransfers limits concurrent leadership transfers for balance; default
	// 64.
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

// Coordinator makes the decisions for a cluster while its node leads the
// metadata shard. Its memory only avoids repeated requests: a new Coordinator,
// wherever the metadata shard is led next, continues from the metadata and the
// reports. It belongs to one goroutine at a time.
type Coordinator struct {
	opts    Options
	reports map[sharding.NodeID]*receivedReport
	// unreachableSince has the time since when each unreachable member has been
	// unreachable.
	unreachableSince map[sharding.NodeID]time.Time
	// impairments are the nodes that were slow, or came and went.
	impairments map[sharding.NodeID]*impairment
	// leaders has, by shard, the report of the node that last claimed
	// leadership in the highest term claimed; terms has the highest term
	// reported by any replica.
	leaders      map[sharding.ShardID]*receivedReport
	terms        map[sharding.ShardID]sharding.Term
	forgetChecks map[sharding.ShardID]forgetCheck
	// leaderlessSince has the time since when each leaderless data shard has
	// had no known leader.
	leaderlessSince map[sharding.ShardID]time.Time
	// departures are the checks of shards with voters that must go.
	departures map[sharding.ShardID]departureCheck
	// pendingTransfers are the leadership transfers that were requested.
	pendingTransfers map[sharding.ShardID]pendingTransfer
	// pinnedLeaders are the nodes to which an operator moved leaderships.
	pinnedLeaders map[sharding.ShardID]sharding.NodeID
	operations    []*operation // at most MaxOperations, which the caller enforces
	// placements caches the sorted placements of placementsView.
	placements     []meta.Placement
	placementsView *meta.View
	// lastCollect is the time of the last search that found no unused modules.
	lastCollect time.Time
}

// receivedReport is the latest report of a node.
type receivedReport struct {
	report Report
	at     time.Time
	shards map[sharding.ShardID]*ShardReport // indexes report.Shards
	stops  bool                              // a replica on the node has stopped
	behind bool                              // a replica on the node cannot read its log
}

// pendingTransfer is a requested leadership transfer.
type pendingTransfer struct {
	to   sharding.NodeID
	term sharding.Term
	at   time.Time
}

// New returns a coordinator without any reports.
func New(o Options) *Coordinator {
	return &Coordinator{
		opts: o.withDefaults(), reports: map[sharding.NodeID]*receivedReport{}, unreachableSince: map[sharding.NodeID]time.Time{}, impairments: map[sharding.NodeID]*impairment{},
		leaders: map[sharding.ShardID]*receivedReport{}, terms: map[sharding.ShardID]sharding.Term{}, leaderlessSince: map[sharding.ShardID]time.Time{}, forgetChecks: map[sharding.ShardID]forgetCheck{},
		departures:       map[sharding.ShardID]departureCheck{},
		pendingTransfers: map[sharding.ShardID]pendingTransfer{}, pinnedLeaders: map[sharding.ShardID]sharding.NodeID{},
	}
}

// Input is the input of a step.
type Input struct {
	// Now must not go back.
	Now time.Time
	// View is the metadata. It must include every command of earlier plans that
	// will ever take effect, so the caller waits for the outcome of those commands
	// before the next step.
	View *meta.View
	// Reports are the reports received since the last step, including this
	// node's own. Duplicates are harmless.
	Reports []Report
	// Reachable are the nodes that this node can reach, including itself.
	Reachable map[sharding.NodeID]bool
	// Operations are new operations.
	Operations []Operation
}

// Plan is the output of a step. It belongs to the caller.
type Plan struct {
	// Commands must be proposed to the metadata shard in order. A rejected
	// command is not an error; the next step decides again.
	Commands [][]byte
	// Transfers must be sent to their From nodes, immediately or with the answer
	// to the node's next report.
	Transfers []Transfer
	// Rejoin are nodes that report but no longer belong to the metadata shard,
	// because they were considered dead or were removed. They must be notified so
	// that they call Join, unless they intend to leave.
	Rejoin []sharding.NodeID
	// Impairments are the nodes to which balancing gives no leaderships, sorted by
	// id. For display only.
	Impairments []Impairment
	// Pending are the accepted operator requests that are not done yet, in a
	// stable order. For display only.
	Pending []Pending
	// Progress has an element for every operation. An operation is not
	// mentioned again after Done.
	Progress []Progress
}

// Step makes the decisions of one step. Coordinators with equal state return
// equal plans for equal inputs.
func (c *Coordinator) Step(in Input) Plan {
	s := c.newStepView(in)
	if _, created := in.View.Cluster(); !created {
		return s.plan
	}
	s.takeOperations(in.Operations)
	s.updateMembers()
	s.placeShards()
	for _, sh := range s.shards {
		s.forget(sh)
	}
	s.repair()
	s.followOperations()
	s.transfers()
	s.collect()
	s.report()
	s.findPending()
	s.beginDepartureChecks()
	return s.plan
}
