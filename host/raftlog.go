package host

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
)

// raftLog is the raft loop as the parts see it that are made before it.
type raftLog struct {
	loop  atomic.Pointer[raftgroup.Loop]
	mu    sync.Mutex
	nodes map[sharding.NodeID]bool   // whether each was heard last
	early []raftgroup.StoppedReplica // before there was a loop
}

func (r *raftLog) Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error {
	if l := r.loop.Load(); l != nil {
		return l.Propose(shard, fence, proposal, data)
	}
	return raftgroup.ErrStopped
}

// receive passes on a frame of another node.
func (r *raftLog) receive(from sharding.NodeID, frame []byte) {
	if l := r.loop.Load(); l != nil {
		_ = l.Receive(from, frame) // a frame that is none is a stranger's fault
	}
}

// heard, silent and gone pass on who is heard, and who seems to be no more.
func (r *raftLog) heard(node sharding.NodeID)  { r.note(node, true, tell) }
func (r *raftLog) silent(node sharding.NodeID) { r.note(node, false, tell) }
func (r *raftLog) gone(node sharding.NodeID) {
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

func tell(l *raftgroup.Loop, node sharding.NodeID, heard bool) {
	if heard {
		l.PeerAlive(node)
	} else {
		l.PeerSuspected(node)
	}
}

// open gives the parts their loop, and the loop what was heard before it.
func (r *raftLog) open(l *raftgroup.Loop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loop.Store(l)
	for node, heard := range r.nodes {
		tell(l, node, heard)
	}
	for _, s := range r.early {
		l.ReplicaStopped(s)
	}
	r.early = nil
}

// turns is how often the loop has gone round; 0 before there is one.
func (r *raftLog) turns() uint64 {
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

// stopped lets the replica step aside whose state machine has stopped. It is
// told from the applying goroutine.
func (r *raftLog) stopped(s eventlog.Stopped) {
	out := raftgroup.StoppedReplica{Shard: s.Shard, Generation: s.Generation, Reason: s.Reason()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.loop.Load(); l != nil {
		l.ReplicaStopped(out)
	} else {
		r.early = append(r.early, out)
	}
}

// snapshotSender carries the state of replicas that have fallen behind.
type snapshotSender struct{ peers *peer.Peers }

// SendSnapshot implements raftgroup.SnapshotSender.
func (s snapshotSender) SendSnapshot(ctx context.Context, to sharding.NodeID, head []byte, stream io.Reader) ([]byte, error) {
	return s.peers.SendSnapshot(ctx, to, head, stream)
}

// snapshot takes a replica's state that another node sends.
func (r *raftLog) snapshot(ctx context.Context, from sharding.NodeID, head []byte, body io.Reader) (answer []byte, err error) {
	l := r.loop.Load()
	if l == nil {
		return nil, peer.ErrUnavailable
	}
	if answer, err = l.ReceiveSnapshot(ctx, from, head, body); err != nil {
		return nil, fmt.Errorf("%w: %w", peer.ErrUnavailable, err)
	}
	// A snapshot that was not needed was not read to its end.
	_, err = io.Copy(io.Discard, body)
	return answer, err
}

// proposalLog is what lanes propose to.
type proposalLog struct {
	*raftLog
	backlog func() int64
	frozen  func() bool // lanes, for an export
	refuses func(sharding.ShardID) error
}

// Propose refuses what would be built on rows that may be wrong.
func (p proposalLog) Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error {
	if err := p.refuses(shard); err != nil {
		return err
	}
	return p.raftLog.Propose(shard, fence, proposal, data)
}

func (p proposalLog) Busy() bool { return p.backlog() > backlogBytes || p.frozen() }
