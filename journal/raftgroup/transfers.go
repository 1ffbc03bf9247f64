package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

const (
	// resumeTicks is the number of ticks for which an interrupted snapshot can
	// be resumed. For that long, the sender keeps the snapshot's file and the
	// log entries after it, and the receiver keeps the received part.
	resumeTicks = 3000
	// checkFilesTicks is the number of ticks between two checks of the kept files.
	checkFilesTicks = 10
	// maxRetryTicks bounds the delay before a group sends another snapshot after
	// failures, in ticks.
	maxRetryTicks = 64
)

// transfers tracks the snapshots being sent from and received on this node, and
// their files.
type transfers struct {
	opts      *Options
	stats     *Counters
	files     *snapdir.Dir // nil without snapshots
	now       uint64       // number of ticks so far
	sending   int          // number of snapshots handed out whose outcome is not reported yet
	unsent    []*Outgoing
	withFiles []*group // groups with a file being sent or partly received
}

// groupTransfers is the snapshot state of a group.
type groupTransfers struct {
	pins logPins           // pins for the followers to which a snapshot is being sent
	file *snapdir.SendFile // the file being sent to them
	// After a failed snapshot, no snapshot is sent before tick retryAt. failures
	// counts the failed snapshots in succession.
	failures int
	retryAt  uint64

	incoming *incomingSnapshot
	part     *snapdir.Part // received part of an interrupted snapshot
}

// snapshotFunc returns describe bound to a group, or nil if there are no
// snapshots.
func (t *transfers) snapshotFunc(g *group) func() (*pb.Snapshot, error) {
	if t.opts.Snapshots == nil {
		return nil
	}
	return func() (*pb.Snapshot, error) { return t.describeSnapshot(g) }
}

// describeSnapshot implements raft's Storage.Snapshot: it returns index, term and
// members of the snapshot that would be sent. If none can be sent now raft asks
// again later.
func (t *transfers) describeSnapshot(g *group) (*pb.Snapshot, error) {
	if t.sending >= t.opts.MaxSnapshotsOut+t.opts.MaxSnapshotsQueued || t.now < g.transfer.retryAt {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	index, term := t.opts.Snapshots.StateIndex(g.shard)
	if f := g.sendable(); f != nil {
		h := f.Header()
		index, term = h.Index, h.Term
	}
	if first, _ := g.log.FirstIndex(); index == 0 || index < first-1 || index < g.conf.Index {
		// A member that the last change added would not find itself in the members of
		// an older state, and would ignore the snapshot.
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return wire.SnapshotOf(index, uint64(term), g.conf.State), nil
}

// sendable returns the group's file if a follower can continue from it: the log
// starts at or before its index, and the members have not changed since.
func (g *group) sendable() *snapdir.SendFile {
	f := g.transfer.file
	if f == nil || f.HasFailed() || f.Header().Index < g.conf.Index {
		return nil
	}
	if first, _ := g.log.FirstIndex(); f.Header().Index < first-1 {
		return nil
	}
	return f
}

// ship adds raft's snapshot message to the snapshots that a turn hands out, if
// the receiver's node is known.
func (t *transfers) ship(out []*Outgoing, g *group, m *pb.Message) []*Outgoing {
	header := wire.SnapshotHeader{
		Shard: g.shard, From: sharding.ReplicaID(g.replica), To: sharding.ReplicaID(m.GetTo()), Term: sharding.Term(m.GetTerm()),
	}
	t.sending++
	n := g.routes.Locate(m.GetTo())
	if n == nil {
		t.unsent = append(t.unsent, newOutgoing(header, ""))
		return out
	}
	return append(out, newOutgoing(header, n.ID))
}

// begin chooses the state to send and pins the log entries that follow. It is
// either the group's existing file, or a state that is to be written to a new
// file; the state's index may differ from the index that raft was given. A
// direct transfer streams the state from the store instead. Core.reportSnapshot
// must be called even after an error.
func (t *transfers) begin(g *group, o *Outgoing, direct bool) error {
	t.detach(g, o)
	if g == nil || g.replica != uint64(o.From) || !g.leader {
		return raft.ErrSnapshotTemporarilyUnavailable
	}
	var h statefile.Header
	var state statefile.Pinned
	var file *snapdir.SendFile
	if f := g.sendable(); f != nil && !direct {
		h, file = f.Header(), f
	} else {
		var err error
		if state, err = t.opts.Snapshots.Pin(g.shard); err != nil {
			return err
		}
		h = state.Header()
		if h.Index < g.conf.Index || h.Index < g.log.TruncatedIndex() {
			state.Close()
			return raft.ErrSnapshotTemporarilyUnavailable
		}
		if !direct {
			file = t.newFile(g, h)
		}
	}
	o.Index, o.IndexTerm = h.Index, h.Term
	o.Members = wire.Membership{Index: g.conf.Index, State: proto.Clone(g.conf.State).(*pb.ConfState)}
	o.begin(t.files, state, file, g.transfer.pins.Set(uint64(o.To), h.Index))
	return nil
}

// newFile starts a new file for the group and drops any previous file.
func (t *transfers) newFile(g *group, head statefile.Header) *snapdir.SendFile {
	f := t.files.NewSendFile(g.shard, g.replica, head)
	t.discardFile(g)
	g.transfer.file = f
	t.trackFiles(g)
	return f
}

// discardFile removes the file from the group. The file is deleted once it is
// no longer being sent.
func (t *transfers) discardFile(g *group) {
	f := g.transfer.file
	g.transfer.file = nil
	if f != nil && !f.IsUsed() {
		t.files.DiscardSendFile(f)
	}
}

// detach ends the use of a file by a transfer.
func (t *transfers) detach(g *group, o *Outgoing) {
	f := o.releaseFile()
	if f == nil {
		return
	}
	if g != nil && g.transfer.file == f && f.HasFailed() {
		g.transfer.file = nil
	}
	if !f.IsUsed() && (g == nil || g.transfer.file != f) {
		t.files.DiscardSendFile(f)
	}
}

// finishSend records the outcome of a snapshot. It returns the status to report to
// raft, and whether the sending replica still exists.
func (t *transfers) finishSend(g *group, o *Outgoing, err error) (status raft.SnapshotStatus, there bool) {
	o.Release()
	t.sending--
	until := t.now // a snapshot without a file, or with a damaged file, starts over
	if damage := o.damage; damage != nil {
		t.stats.SnapshotFilesDamaged++
		t.opts.Logger.Error("snapshot file is damaged; writing it again", "shard_id", uint64(o.Shard), "error", damage)
		if g != nil && g.transfer.file == o.file {
			g.transfer.file = nil
		}
	} else if f := o.file; f != nil && !f.HasFailed() {
		until += resumeTicks
	}
	if o.isResumed() {
		t.stats.SnapshotsResumed++
	}
	t.detach(g, o)
	if g == nil || g.replica != uint64(o.From) || g.failed {
		return 0, false
	}
	of := &g.transfer
	if err == nil {
		of.failures, of.retryAt = 0, 0
		of.pins.End(uint64(o.To), t.now+stallTicks)
		of.pins.SetInstalled(uint64(o.To), o.Index)
		return raft.SnapshotFinish, true
	}
	of.pins.End(uint64(o.To), until)
	of.retryAt = t.now + min(uint64(1)<<min(of.failures, 10), maxRetryTicks)
	of.failures++
	t.opts.Logger.Debug("snapshot transfer failed", "shard_id", uint64(o.Shard), "replica_id", uint64(o.To), "index", o.Index, "error", err)
	return raft.SnapshotFailure, true
}

// hasPins drops expired pins and reports whether any remain.
func (t *transfers) hasPins(g *group) bool {
	pins := &g.transfer.pins
	if !pins.HasPins() {
		return false
	}
	near := max(g.log.TailIndex(t.opts.RetainBytes/2), g.log.TruncatedIndex())
	pins.Expire(t.now, near, func(id uint64) (match uint64, known bool) {
		for _, p := range g.progress() {
			if p.id == id {
				return p.match, true
			}
		}
		return 0, false
	})
	return pins.HasPins() && g.leader
}

// trackFiles adds the group to the groups whose files are checked.
func (t *transfers) trackFiles(g *group) {
	if !slices.Contains(t.withFiles, g) {
		t.withFiles = append(t.withFiles, g)
	}
}

// tick discards files of transfers that did not resume: files that waited too
// long, that are obsolete, or that exceed the space allowed for them.
func (t *transfers) tick() {
	t.now++
	if t.now%checkFilesTicks != 0 || len(t.withFiles) == 0 {
		return
	}
	short := t.files.CheckSpace(0) != nil
	t.withFiles = slices.DeleteFunc(t.withFiles, func(g *group) bool {
		of := &g.transfer
		if p := of.part; p != nil {
			old := p.Index() != 0 && p.Index() <= g.hard.Commit
			if short || old || t.now-p.Since() > resumeTicks {
				t.discardPart(g)
			}
		}
		if f := of.file; f != nil && !f.IsUsed() && (g.failed || !t.hasPins(g) || !of.pins.IsAwaited(f.Header().Index, t.now)) {
			t.discardFile(g)
		}
		return g.removed || of.part == nil && of.file == nil
	})
}

// keepLog saves the entries that are about to be truncated if a snapshot
// transfer needs them. If the entries do not fit or cannot be written, the
// snapshot is sent in vain, and another snapshot must follow it.
func (t *transfers) keepLog(g *group) {
	if !t.hasPins(g) || t.files == nil {
		g.log.DropCatchUp()
		return
	}
	pins := &g.transfer.pins
	name := fmt.Sprintf("%08x-%016x.catchup", uint32(g.shard), g.replica)
	if err := g.log.SaveCatchUp(t.files, name, pins.MinIndex(), g.written.TruncatedIndex); err != nil {
		pins.Clear()
		t.stats.SnapshotsOutrun++
		t.opts.Logger.Warn("snapshot transfer starts over: cannot keep the log after the snapshot", "shard_id", uint64(g.shard), "error", err)
	}
}

// discardAll discards the snapshot state of a removed group.
func (t *transfers) discardAll(g *group) {
	if g.install.Index != 0 {
		t.files.Discard(g.fileName())
	}
	if in := g.transfer.incoming; in != nil && in.Stepped {
		t.discard(in, ErrUnknownShard)
	}
	g.transfer.incoming = nil
	t.discardPart(g)
	t.discardFile(g)
}

// discardInstalled discards the snapshot file with which the group's generation
// began, once the state machine has its content durably as of the recorded
// watermark. A restart then finds the generation complete without the file.
func (t *transfers) discardInstalled(g *group, durable uint64) {
	if g.install.Index != 0 && durable >= g.install.Index {
		t.files.Discard(g.fileName())
		g.install, g.written.Install = wire.InstallImage{}, wire.InstallImage{}
	}
}

// discard drops a received snapshot and its file.
func (t *transfers) discard(in *incomingSnapshot, err error) {
	t.files.Discard(in.Name())
	in.End(err)
}

// releaseIncoming drops a snapshot that was not stepped into raft, but keeps
// the part that was received.
func (t *transfers) releaseIncoming(g *group, in *incomingSnapshot) {
	t.keepPart(g, in)
	if g != nil && g.transfer.incoming == in {
		g.transfer.incoming = nil
	}
}

// keepPart stores a received part until the transfer resumes.
func (t *transfers) keepPart(g *group, in *incomingSnapshot) {
	p := in.TakePart()
	switch {
	case p == nil || p.IsEmpty():
	case g == nil || g.replica != uint64(in.To):
		t.files.DiscardPart(p)
	default:
		t.attachPart(g, p)
	}
}

// attachPart attaches a received part to a group.
func (t *transfers) attachPart(g *group, p *snapdir.Part) {
	t.files.KeepPart(p, t.now)
	g.transfer.part = p
	t.trackFiles(g)
}

// detachPart detaches the group's part so that it can be written to.
func (t *transfers) detachPart(g *group) *snapdir.Part {
	p := g.transfer.part
	t.files.TakePart(p)
	g.transfer.part = nil
	return p
}

// discardPart discards the received part of a snapshot.
func (t *transfers) discardPart(g *group) {
	if g.transfer.part != nil {
		t.files.DiscardPart(t.detachPart(g))
	}
}
