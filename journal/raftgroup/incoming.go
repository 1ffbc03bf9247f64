package raftgroup

import (
	"fmt"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
)

// installation is a call of Snapshots.Install.
type installation struct {
	Shard      sharding.ShardID
	Generation uint32

	name  string // name of the file
	image wire.InstallImage
	in    *incomingSnapshot
}

// admitSnapshot admits a snapshot that a peer wants to send or asks about. It
// returns nil if the replica already has everything in the snapshot, as happens
// if the leader missed the acknowledgment; raft then repeats the
// acknowledgment. admitSnapshot also returns nil for a question about a
// snapshot of which this node has nothing.
func (c *Core) admitSnapshot(from sharding.NodeID, h wire.SnapshotHeader, at wire.TransferHead) (*incomingSnapshot, error) {
	g := c.groups[h.Shard]
	switch {
	case c.opts.Snapshots == nil:
		return nil, errNoSnapshots
	case g == nil || g.replica != uint64(h.To):
		return nil, ErrUnknownShard
	}
	switch by := c.senderOf(g, from, uint64(h.From)); {
	case g.isDisabled():
		return nil, errReplicaStopped
	case by == senderForeign || uint64(h.Term) > g.hard.Term+maxTermJump || h.Index > maxIndex:
		c.stats.MessagesForged++
		return nil, ErrSnapshotIgnored
	case by == senderUnplaced && c.ignoresUnplaced(g):
		c.stats.MessagesRefused++
		return nil, ErrSnapshotIgnored
	case c.awaitingRelease || c.opts.isHeld(g.shard) || g.transfer.incoming != nil:
		return nil, ErrBusy
	case uint64(h.Term) < g.hard.Term:
		return nil, ErrSnapshotIgnored
	}
	if h.Index <= g.hard.Commit {
		c.step(g, h.Message())
		c.clocks.wake(g)
		c.markDirty(g)
		return nil, nil
	}
	if g.routes.Learn(uint64(h.From), from) {
		c.updateQuorum(g)
	}
	in := &incomingSnapshot{SnapshotHeader: h}
	switch here := g.transfer.part != nil && g.transfer.part.Matches(h.File(), at.Digest); {
	case here && (at.IsQuestion || at.Offset <= g.transfer.part.Offset()):
		in.Resume(c.transfers.detachPart(g), at.Offset)
	case at.IsQuestion:
		return nil, nil
	case at.Offset > 0:
		return nil, errNoPart
	default:
		c.transfers.discardPart(g)
		in.Resume(c.transfers.files.NewPart(h.Shard, h.To, at.Digest), 0)
	}
	g.transfer.incoming = in
	return in, nil
}

// stepSnapshot steps a snapshot that is completely in its file into raft. done
// is called when its record is durable, or with the error.
func (c *Core) stepSnapshot(in *incomingSnapshot, digest statefile.Digest, done func(error)) {
	in.Complete(digest, done)
	g := c.groups[in.Shard]
	if g == nil || g.transfer.incoming != in || g.failed {
		c.transfers.discard(in, ErrUnknownShard)
		return
	}
	in.Stepped = true
	c.clocks.wake(g)
	c.step(g, in.Message())
	c.markDirty(g)
}

// recordInstall reports whether the group's raft.Ready, if it has one, contains the
// snapshot that was stepped. It adds all of the group's state that must be written.
func (c *Core) recordInstall(g *group, has bool) bool {
	in := g.transfer.incoming
	if !has || raft.IsEmptySnap(g.ready.Snapshot) {
		g.transfer.incoming = nil
		var err error // raft may already have everything in the snapshot
		if g.hard.Commit < in.Index {
			err = ErrSnapshotIgnored
		}
		c.transfers.discard(in, err)
		return false
	}
	if s := g.ready.Snapshot.GetMetadata(); in.Index != s.GetIndex() || uint64(in.IndexTerm) != s.GetTerm() {
		panic(fmt.Sprintf("raftgroup: shard %d: raft restored a snapshot at index %d instead of %d", g.shard, s.GetIndex(), in.Index))
	}
	c.records.addInstall(g)
	c.turn.MustSync = true
	if len(g.ready.Entries) > 0 {
		h := g.hard
		c.records.add(g, wire.Section{
			Shard: uint32(g.shard), Replica: g.replica, Hard: &h, First: g.ready.Entries[0].GetIndex(), Ents: g.ready.Entries,
		})
	}
	return true
}

// imageAfterInstall returns the log's image of the group once the snapshot is installed. Its
// hard state omits everything after the snapshot.
func imageAfterInstall(g *group, in *incomingSnapshot) wire.GroupImage {
	return wire.GroupImage{
		Shard: uint32(g.shard), Replica: g.replica, Generation: g.generation + 1,
		Hard:           wire.HardState{Term: g.hard.Term, Vote: g.hard.Vote, Commit: in.Index},
		TruncatedIndex: in.Index, TruncatedTerm: uint64(in.IndexTerm),
		Conf: in.Membership(), Install: in.Image(),
	}
}

// install switches the group to the recorded snapshot.
func (c *Core) install(g *group) {
	in := g.transfer.incoming
	g.transfer.incoming = nil
	if g.install.Index != 0 {
		c.transfers.files.Discard(g.fileName())
	}
	g.generation, g.install = g.generation+1, in.Image()
	g.log.Reset(in.Index, uint64(in.IndexTerm))
	g.conf, g.applied = in.Membership(), in.Index
	c.retention.pending = true
	g.reset()
	c.stopped.remove(g)
	g.routes.Retain(g.isMember)
	c.updateClock(g)
	c.updateQuorum(g)
	c.turn.Installs = append(c.turn.Installs, installation{Shard: g.shard, Generation: g.generation, name: g.fileName(), image: g.install, in: in})
}
