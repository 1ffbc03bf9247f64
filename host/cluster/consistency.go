package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

// ConsistencyChecker finds out which replica of a shard is wrong if replicas
// disagree.
//
// The shard's log contains a checksum of the rows at certain indexes, computed
// by the leader of that time. A replica that computes a different checksum
// at the same index asks all voters for their checksums and sends its own.
// Each voter that disagrees with the received checksum starts the same
// inquiry. So the leader takes part too, although its checksum is the one in
// the log. Each node judges only its own replica: it stops the replica if a
// majority of the voters has a different checksum, or if no checksum has a
// majority.
//
// The type is safe for concurrent use.
type ConsistencyChecker struct {
	self   sharding.NodeID
	logger *slog.Logger
	opts   ConsistencyCheckerOptions

	mu      sync.Mutex
	open    map[sharding.ShardID]journal.Proof // this node's checksums that must be checked
	decided map[sharding.ShardID]uint64        // the last index that was decided
	wake    chan struct{}

	// disputed are the shards for which too few voters answered. Requests
	// for these shards are rejected until enough voters answer. The map is
	// not modified; nil if it is empty.
	disputed atomic.Pointer[disputedError]
}

// disputedError names shards whose replicas disagree while it is unknown
// which replicas are right.
type disputedError map[sharding.ShardID]bool

func (e disputedError) Error() string {
	return fmt.Sprintf("replicas differ, and no majority of voters shows which are right: shards %v", slices.Sorted(maps.Keys(e)))
}

// Refuses returns why requests for a shard are rejected here, or nil.
func (j *ConsistencyChecker) Refuses(shard sharding.ShardID) error {
	if d := j.disputed.Load(); d != nil && (*d)[shard] {
		return fmt.Errorf("%w: replicas of shard %d differ, and no majority of voters shows which are right", journal.ErrDamaged, shard)
	}
	return nil
}

// Count returns the number of disputed shards.
func (j *ConsistencyChecker) Count() int {
	if d := j.disputed.Load(); d != nil {
		return len(*d)
	}
	return 0
}

// Disputes returns an error that makes the node unready if shards are disputed.
func (j *ConsistencyChecker) Disputes() error {
	if d := j.disputed.Load(); d != nil {
		return *d
	}
	return nil
}

const (
	rowsTimeout  = 2 * time.Second
	rowsRest     = time.Second
	rowsRestMost = 30 * time.Second
)

// NewConsistencyChecker returns a checker that cannot ask other nodes before
// Open.
func NewConsistencyChecker(self sharding.NodeID, logger *slog.Logger) *ConsistencyChecker {
	return &ConsistencyChecker{
		self: self, logger: logger, wake: make(chan struct{}, 1),
		open: make(map[sharding.ShardID]journal.Proof), decided: make(map[sharding.ShardID]uint64),
	}
}

// checksums are the checksums of this node's rows.
type checksums interface {
	// ComparedChecksum returns the checksum at an index, if there is one.
	ComparedChecksum(shard sharding.ShardID, index uint64) (journal.RowsDigest, bool)
}

// voters knows which nodes vote on a shard.
type voters interface {
	Voters(sharding.ShardID) []sharding.NodeID
}

// comparer compares checksums with other nodes.
type comparer interface {
	// CompareRows asks a node for its checksum and sends it this node's.
	CompareRows(ctx context.Context, node sharding.NodeID, shard sharding.ShardID, own journal.Proof) (theirs journal.RowsDigest, ok bool, err error)
}

// ConsistencyCheckerOptions are the dependencies of a checker. All are
// required.
type ConsistencyCheckerOptions struct {
	Machine checksums
	Voters  voters // by the metadata
	Peers   comparer
	Applier stopper // stops a replica of this node that is wrong
}

// Open sets the dependencies. Call it before Run.
func (j *ConsistencyChecker) Open(o ConsistencyCheckerOptions) { j.opts = o }

// Differs implements eventlog.Options.Differs.
func (j *ConsistencyChecker) Differs(d eventlog.Difference) { j.add(d.Shard, d.Own) }

// Compare answers another node. If the two checksums differ, it also starts to
// check this node's replica.
func (j *ConsistencyChecker) Compare(shard sharding.ShardID, theirs journal.Proof) (own journal.RowsDigest, ok bool) {
	if own, ok = j.opts.Machine.ComparedChecksum(shard, theirs.Index); ok && own != theirs.Checksum {
		j.add(shard, journal.Proof{Index: theirs.Index, Checksum: own})
	}
	return own, ok
}

func (j *ConsistencyChecker) add(shard sharding.ShardID, own journal.Proof) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if own.Index <= j.decided[shard] || own.Index <= j.open[shard].Index {
		return
	}
	j.open[shard] = own
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Run checks replicas until ctx ends. It checks a replica at once, and again
// with a back-off if too few voters answered.
func (j *ConsistencyChecker) Run(ctx context.Context) {
	rest := time.NewTimer(rowsRest)
	defer rest.Stop()
	for wait := rowsRest; ; {
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
			wait = rowsRest
		case <-rest.C:
			wait = min(2*wait, rowsRestMost)
		}
		j.round(ctx)
		rest.Reset(wait)
	}
}

func (j *ConsistencyChecker) round(ctx context.Context) {
	j.mu.Lock()
	open := maps.Clone(j.open)
	j.mu.Unlock()
	disputed := disputedError{}
	for _, shard := range slices.Sorted(maps.Keys(open)) {
		own := open[shard]
		switch j.checkReplica(ctx, shard, own) {
		case checkUnanswered:
			disputed[shard] = true
			continue
		case checkUnknown:
			continue
		}
		j.mu.Lock()
		if j.decided[shard] = own.Index; j.open[shard] == own {
			delete(j.open, shard)
		}
		j.mu.Unlock()
	}
	if len(disputed) == 0 {
		j.disputed.Store(nil)
	} else {
		j.disputed.Store(&disputed)
	}
}

// checkResult is the result of one check of a replica.
type checkResult uint8

const (
	checkDecided checkResult = iota
	// checkUnanswered: voters do not answer, and without their answers it is
	// unknown which replica is right.
	checkUnanswered
	// checkUnknown: all voters answered, but too few have a checksum at the
	// index, because a voter has not reached the index, or received a
	// snapshot of a later index. The shard continues. The next checksum
	// comes with new entries, and all voters will have it.
	checkUnknown
)

// checkReplica compares this node's replica with the voters' replicas.
func (j *ConsistencyChecker) checkReplica(ctx context.Context, shard sharding.ShardID, own journal.Proof) checkResult {
	if now, ok := j.opts.Machine.ComparedChecksum(shard, own.Index); !ok || now != own.Checksum {
		return checkDecided // the replica was replaced, or a later index is being checked
	}
	nodes := j.opts.Voters.Voters(shard)
	votes := make([]coordinator.ChecksumVote, len(nodes))
	var missing atomic.Bool // a voter did not answer
	var calls sync.WaitGroup
	for i, node := range nodes {
		if node == j.self {
			votes[i] = coordinator.ChecksumVote{Known: true, Checksum: own.Checksum}
			continue
		}
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, rowsTimeout)
			defer cancel()
			theirs, ok, err := j.opts.Peers.CompareRows(ctx, node, shard, own)
			votes[i] = coordinator.ChecksumVote{Known: ok && err == nil, Checksum: theirs}
			if err != nil {
				missing.Store(true)
			}
		})
	}
	calls.Wait()
	what := ""
	switch coordinator.CheckConsistency(own.Checksum, votes) {
	case coordinator.ConsistencyUnknown:
		if !missing.Load() {
			return checkUnknown
		}
		j.logger.Error("replicas of a shard differ; rejecting its requests until a majority of voters reports a checksum", "shard_id", uint64(shard), "index", own.Index)
		return checkUnanswered
	case coordinator.Consistent:
		return checkDecided
	case coordinator.Inconsistent:
		what = "its checksum differs from a majority of the replicas"
	case coordinator.ConsistencyDisputed:
		what = "no majority of the replicas has the same checksum"
	}
	j.opts.Applier.Stop(shard, fmt.Errorf("%w: shard %d at index %d: %s", journal.ErrDamaged, shard, own.Index, what))
	return checkDecided
}
