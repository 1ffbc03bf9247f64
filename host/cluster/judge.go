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
	"github.com/hostd/hostd/sharding/meta"
)

// ConsistencyChecker finds which replica of a shard is wrong, where replicas have other
// digests of their rows at an index that the shard's log named. Who differs asks
// all voters for theirs, and each that is asked and differs from who asks does
// the same: so the leader, with which the log agrees, does too. Each judges
// itself alone. It is safe for concurrent use.
type ConsistencyChecker struct {
	self   sharding.NodeID
	logger *slog.Logger
	own    func(shard sharding.ShardID, index uint64) (journal.RowsDigest, bool)
	voters func(sharding.ShardID) []sharding.NodeID
	ask    func(context.Context, sharding.NodeID, sharding.ShardID, journal.Proof) (journal.RowsDigest, bool, error)
	stop   func(sharding.ShardID, error)

	mu     sync.Mutex
	open   map[sharding.ShardID]journal.Proof // this node's own
	judged map[sharding.ShardID]uint64        // the last index
	wake   chan struct{}

	// disputed are the shards of which too few voters said what they have: they
	// are refused until they do. It is never changed; nil where there are none.
	disputed atomic.Pointer[disputedError]
}

// disputedError names shards whose replicas differ, while nobody knows which is
// right.
type disputedError map[sharding.ShardID]bool

func (e disputedError) Error() string {
	return fmt.Sprintf("replicas differ, and too few voters are there to say which are right: shards %v", slices.Sorted(maps.Keys(e)))
}

// Refuses is why nothing is asked of a shard here, nil mostly.
func (j *ConsistencyChecker) Refuses(shard sharding.ShardID) error {
	if d := j.disputed.Load(); d != nil && (*d)[shard] {
		return fmt.Errorf("%w: replicas of shard %d differ, and too few voters are there to say which are right", journal.ErrDamaged, shard)
	}
	return nil
}

// Count is how many shards are refused.
func (j *ConsistencyChecker) Count() int {
	if d := j.disputed.Load(); d != nil {
		return len(*d)
	}
	return 0
}

// Disputes is the readiness of a node with such shards.
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

// NewConsistencyChecker makes a judge that has nobody to ask before Open.
func NewConsistencyChecker(self sharding.NodeID, logger *slog.Logger) *ConsistencyChecker {
	return &ConsistencyChecker{
		self: self, logger: logger, wake: make(chan struct{}, 1),
		open: make(map[sharding.ShardID]journal.Proof), judged: make(map[sharding.ShardID]uint64),
	}
}

// ConsistencyCheckerOptions are what a judge asks; all are required.
type ConsistencyCheckerOptions struct {
	// Own is the digest of this node's rows, where it has one at the index.
	Own func(shard sharding.ShardID, index uint64) (journal.RowsDigest, bool)
	// View is the metadata, which names the voters.
	View func() *meta.View
	// Ask asks another node for its digest, and tells it this node's.
	Ask func(context.Context, sharding.NodeID, sharding.ShardID, journal.Proof) (journal.RowsDigest, bool, error)
	// Stop stops a replica that is wrong.
	Stop func(sharding.ShardID, error)
}

// Open gives the judge what it asks, before Run.
func (j *ConsistencyChecker) Open(o ConsistencyCheckerOptions) {
	j.own, j.ask, j.stop = o.Own, o.Ask, o.Stop
	j.voters = func(shard sharding.ShardID) []sharding.NodeID { return votersOf(o.View(), shard) }
}

// Differs is eventlog.Options.Differs.
func (j *ConsistencyChecker) Differs(d eventlog.Difference) { j.add(d.Shard, d.Own) }

// Compare answers another node, and looks into it where that one differs.
func (j *ConsistencyChecker) Compare(shard sharding.ShardID, theirs journal.Proof) (own journal.RowsDigest, ok bool) {
	if own, ok = j.own(shard, theirs.Index); ok && own != theirs.Checksum {
		j.add(shard, journal.Proof{Index: theirs.Index, Checksum: own})
	}
	return own, ok
}

func (j *ConsistencyChecker) add(shard sharding.ShardID, own journal.Proof) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if own.Index <= j.judged[shard] || own.Index <= j.open[shard].Index {
		return
	}
	j.open[shard] = own
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Run judges until ctx ends: at once, and where too few voters answered again,
// ever more rarely.
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
		switch j.judge(ctx, shard, own) {
		case silent:
			disputed[shard] = true
			continue
		case unknown:
			continue
		}
		j.mu.Lock()
		if j.judged[shard] = own.Index; j.open[shard] == own {
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

// judgement is what came of judging a replica once.
type judgement uint8

const (
	settled judgement = iota
	// silent: voters do not answer, and without them nobody is right.
	silent
	// unknown: all voters answer, and too few have the index: one is behind, or was
	// filled by the leader after it. The shard goes on: the next digest, which only
	// entries bring, is one that all of them have.
	unknown
)

// judge judges this node's replica by the voters'.
func (j *ConsistencyChecker) judge(ctx context.Context, shard sharding.ShardID, own journal.Proof) judgement {
	if now, ok := j.own(shard, own.Index); !ok || now != own.Checksum {
		return settled // another life, or a later index is compared
	}
	nodes := j.voters(shard)
	votes := make([]coordinator.ChecksumVote, len(nodes))
	var missing atomic.Bool // a voter
	var calls sync.WaitGroup
	for i, node := range nodes {
		if node == j.self {
			votes[i] = coordinator.ChecksumVote{Known: true, Checksum: own.Checksum}
			continue
		}
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, rowsTimeout)
			defer cancel()
			theirs, ok, err := j.ask(ctx, node, shard, own)
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
			return unknown
		}
		j.logger.Error("replicas of a shard differ, and too few voters say what they have: nothing is asked of it until they do", "shard_id", uint64(shard), "index", own.Index)
		return silent
	case coordinator.Consistent:
		return settled
	case coordinator.Inconsistent:
		what = "its rows are not those of a majority of its replicas"
	case coordinator.ConsistencyDisputed:
		what = "no majority of its replicas has the same rows"
	}
	j.stop(shard, fmt.Errorf("%w: shard %d at index %d: %s", journal.ErrDamaged, shard, own.Index, what))
	return settled
}

// votersOf are the nodes of a shard's voters.
func votersOf(view *meta.View, shard sharding.ShardID) (nodes []sharding.NodeID) {
	p, _ := view.Placement(shard)
	for _, r := range p.Replicas {
		if r.State == meta.ReplicaVoter {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}
