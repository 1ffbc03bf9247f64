package raftgroup

import (
	"bytes"
	"io"
	"slices"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// maxRetryTicks bounds the pause after failed snapshots of a group.
const maxRetryTicks = 64

// Outgoing is a snapshot that raft wants sent. SnapshotSent must follow, and
// before it Stream or Release.
type Outgoing struct {
	SnapshotHeader
	// Node is where the replica lives.
	Node  sharding.NodeID
	state statefile.Pinned
}

// Stream returns the bytes that the other node's ReceiveSnapshot takes; it is
// called at most once. Closing the stream releases the state.
func (o *Outgoing) Stream() io.ReadCloser {
	s := o.state.Stream()
	o.state = nil
	return &outgoingStream{Reader: io.MultiReader(bytes.NewReader(o.SnapshotHeader.append(nil)), s), Closer: s}
}

type outgoingStream struct {
	io.Reader
	io.Closer
}

// Release releases the state if it was not streamed.
func (o *Outgoing) Release() {
	if o.state != nil {
		o.state.Close()
		o.state = nil
	}
}

// describe is raft's Storage.Snapshot: what a snapshot of the group would be
// of. Raft asks again later if there can be none now.
func (c *Core) describe(g *group) (*pb.Snapshot, error) {
	if c.opts.Snapshots == nil || c.sending >= c.opts.MaxSnapshotsOut+c.opts.MaxSnapshotsQueued || c.now < g.retryAt {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	index, term := c.opts.Snapshots.Held(g.shard)
	if index == 0 || index < g.log.cut || index < g.conf.index {
		// Members that the last change brought would find themselves missing
		// in an older state, and ignore it.
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return snapshotOf(index, uint64(term), g.conf.state), nil
}

func snapshotOf(index, term uint64, conf *pb.ConfState) *pb.Snapshot {
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(index), Term: new(term), ConfState: proto.Clone(conf).(*pb.ConfState)}}
}

// ship takes raft's message out: the state is pinned now, and may be of a
// later index than raft was told.
func (c *Core) ship(g *group, m *pb.Message) {
	o := &Outgoing{SnapshotHeader: SnapshotHeader{
		Shard: g.shard, From: sharding.ReplicaID(g.replica), To: sharding.ReplicaID(m.GetTo()), Term: sharding.Term(m.GetTerm()),
	}}
	c.sending++
	p := c.locate(g, m.GetTo())
	if p == nil {
		c.unsent = append(c.unsent, o)
		return
	}
	o.Node = p.node
	g.holds = append(g.holds, hold{to: m.GetTo(), index: m.GetSnapshot().GetMetadata().GetIndex()})
	state, err := c.opts.Snapshots.Pin(g.shard)
	if err == nil {
		h := state.Header()
		o.state, o.Index, o.IndexTerm = state, h.Index, h.Term
		o.members = membership{index: g.conf.index, state: proto.Clone(g.conf.state).(*pb.ConfState)}
		if h.Index < g.conf.index {
			err = raft.ErrSnapshotTemporarilyUnavailable
		}
	}
	if err != nil {
		o.Release()
		c.unsent = append(c.unsent, o)
		return
	}
	c.turn.Snapshots = append(c.turn.Snapshots, o)
}

// SnapshotSent says what became of a snapshot: nil when the other node has it
// durably. After a failure raft tries again, later each time.
func (c *Core) SnapshotSent(o *Outgoing, err error) {
	o.Release()
	c.sending--
	g := c.groups[o.Shard]
	if g == nil || g.replica != uint64(o.From) {
		return
	}
	status := raft.SnapshotFinish
	if err == nil {
		g.failures, g.retryAt = 0, 0
		g.letGo(uint64(o.To), c.now+holdTicks)
		g.arrived(uint64(o.To), o.Index)
	} else {
		g.letGo(uint64(o.To), c.now)
		status = raft.SnapshotFailure
		g.retryAt = c.now + min(uint64(1)<<min(g.failures, 10), maxRetryTicks)
		g.failures++
		c.opts.Logger.Debug("snapshot not sent", "shard_id", uint64(o.Shard), "replica_id", uint64(o.To), "index", o.Index, "error", err)
	}
	c.wake(g)
	g.node.ReportSnapshot(uint64(o.To), status)
	c.touch(g)
}

// failUnsent reports the snapshots of this turn that could not be pinned.
func (c *Core) failUnsent() {
	for _, o := range c.unsent {
		c.SnapshotSent(o, raft.ErrSnapshotTemporarilyUnavailable)
	}
	c.unsent = slices.Delete(c.unsent, 0, len(c.unsent))
}

// TakeSnapshots returns the snapshots that turns wanted sent since the last
// call, where the driver has nobody to hand them to: their receiver passes
// Stream to the other driver's ReceiveSnapshot and SnapshotSent its result.
func (d *Driver) TakeSnapshots() []*Outgoing {
	out := d.outgoing
	d.outgoing = nil
	return out
}

// dispatch hands a turn's snapshots out.
func (d *Driver) dispatch(snapshots []*Outgoing) {
	for _, o := range snapshots {
		if d.ship == nil {
			d.outgoing = append(d.outgoing, o)
		} else if err := d.ship(o); err != nil {
			d.core.SnapshotSent(o, err)
		}
	}
}

// SnapshotSent tells the core what became of a snapshot of TakeSnapshots.
func (d *Driver) SnapshotSent(o *Outgoing, err error) { d.core.SnapshotSent(o, err) }
