package host

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/host/backup"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
)

// raftLog gives access to the raft loop to parts that are created before the
// loop.
type raftLog struct {
	loop  atomic.Pointer[raftgroup.Loop]
	mu    sync.Mutex
	nodes map[sharding.NodeID]bool   // whether the last report said that the node is alive
	early []raftgroup.StoppedReplica // reported before the loop existed
}

func (r *raftLog) Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error {
	if l := r.loop.Load(); l != nil {
		return l.Propose(shard, fence, proposal, data)
	}
	return raftgroup.ErrStopped
}

// Receive passes a raft frame of another node to the loop.
func (r *raftLog) Receive(from sharding.NodeID, frame []byte) {
	if l := r.loop.Load(); l != nil {
		_ = l.Receive(from, frame) // an invalid frame is the sender's fault
	}
}

// setAlive, setSuspected and setFailed report a node to the loop as alive,
// suspected or failed.
func (r *raftLog) setAlive(node sharding.NodeID)     { r.note(node, true, notifyLoop) }
func (r *raftLog) setSuspected(node sharding.NodeID) { r.note(node, false, notifyLoop) }
func (r *raftLog) setFailed(node sharding.NodeID) {
	r.note(node, false, func(l *raftgroup.Loop, node sharding.NodeID, _ bool) { l.PeerFailed(node) })
}

func (r *raftLog) note(node sharding.NodeID, heard bool, tell func(l *raftgroup.Loop, node sharding.NodeID, heard bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes == nil {
		r.nodes = map[sharding.NodeID]bool{}
	}
	r.nodes[node] = heard
	if l := r.loop.Load(); l != nil {
		tell(l, node, heard)
	}
}

func notifyLoop(l *raftgroup.Loop, node sharding.NodeID, heard bool) {
	if heard {
		l.PeerAlive(node)
	} else {
		l.PeerSuspected(node)
	}
}

// open sets the loop and passes on the reports that came before it existed.
func (r *raftLog) open(l *raftgroup.Loop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loop.Store(l)
	for node, heard := range r.nodes {
		notifyLoop(l, node, heard)
	}
	for _, s := range r.early {
		l.ReplicaStopped(s)
	}
	r.early = nil
}

// Turns returns the number of turns of the loop; 0 before the loop exists.
func (r *raftLog) Turns() uint64 {
	if l := r.loop.Load(); l != nil {
		return l.Turns()
	}
	return 0
}

func (r *raftLog) ReadIndex(shard sharding.ShardID, token uint64) error {
	if l := r.loop.Load(); l != nil {
		return l.ReadIndex(shard, token)
	}
	return raftgroup.ErrStopped
}

// Release lets the groups of the loop vote.
func (r *raftLog) Release() error { return r.loop.Load().Release() }

// onReplicaStopped notifies the raft loop that a replica's state machine has stopped, so
// that the replica steps aside. The applier's goroutine calls it.
func (r *raftLog) onReplicaStopped(s eventlog.Stopped) {
	out := raftgroup.StoppedReplica{Shard: s.Shard, Generation: s.Generation, Reason: s.Reason()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.loop.Load(); l != nil {
		l.ReplicaStopped(out)
	} else {
		r.early = append(r.early, out)
	}
}

// snapshotSender sends shard snapshots to replicas that are too far behind.
type snapshotSender struct{ peers *peer.Peers }

// SendSnapshot implements raftgroup.SnapshotSender.
func (s snapshotSender) SendSnapshot(ctx context.Context, to sharding.NodeID, head []byte, stream io.Reader) ([]byte, error) {
	return s.peers.SendSnapshot(ctx, to, head, stream)
}

// ReceiveSnapshot receives a shard snapshot from another node.
func (r *raftLog) ReceiveSnapshot(ctx context.Context, from sharding.NodeID, head []byte, body io.Reader) (answer []byte, err error) {
	l := r.loop.Load()
	if l == nil {
		return nil, peer.ErrUnavailable
	}
	if answer, err = l.ReceiveSnapshot(ctx, from, head, body); err != nil {
		return nil, fmt.Errorf("%w: %w", peer.ErrUnavailable, err)
	}
	// If the snapshot wasn't needed, the loop has not read all of it.
	_, err = io.Copy(io.Discard, body)
	return answer, err
}

// proposalLog is the log that executors propose to.
type proposalLog struct {
	*raftLog
	replicas *replicas
	exports  *backup.Part
}

// Propose rejects commands for a shard whose rows may be wrong, because
// replicas disagree on them.
func (p proposalLog) Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error {
	if err := p.replicas.consistency.Refuses(shard); err != nil {
		return err
	}
	return p.raftLog.Propose(shard, fence, proposal, data)
}

// Busy reports whether too much is applied late, or an export has stopped the
// executors.
func (p proposalLog) Busy() bool {
	return p.replicas.applier.Backlog() > backlogBytes || p.exports.ExecutorsFrozen()
}
