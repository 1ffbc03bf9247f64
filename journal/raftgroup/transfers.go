package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/transfer"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

const (
	// waitTicks is how long a snapshot that broke off may go on where it did: the
	// sender keeps its file and the log behind it as long, the receiver what came.
	waitTicks = 3000
	// tendEvery is how many ticks lie between two looks at files that wait.
	tendEvery = 10
	// maxRetryTicks bounds the pause after failed snapshots of a group.
	maxRetryTicks = 64
)

// transfers are the snapshots on their way from and to this node, and the files
// that they need.
type transfers struct {
	opts    *Options
	stats   *Counters
	files   *snapdir.Dir // nil without snapshots
	now     uint64       // ticks
	sending int          // handed out and not told of
	unsent  []*transfer.Outgoing
	filed   []*group // with a file that is sent, or came in part
}

// transferring is what a group has of snapshots.
type transferring struct {
	pins raftlog.Pins  // of followers that are sent one
	file *snapdir.Sent // that they are sent
	// After failed snapshots no other is sent until the tick.
	failures int
	retryAt  uint64

	incoming *transfer.Incoming
	part     *snapdir.Part // of one that broke off
}

// describer is describe for a group, nil where there are no snapshots.
func (t *transfers) describer(g *group) func() (*pb.Snapshot, error) {
	if t.opts.Snapshots == nil {
		return nil
	}
	return func() (*pb.Snapshot, error) { return t.describe(g) }
}

// describe is raft's Storage.Snapshot: what a snapshot of the group would be
// of. Raft asks again later if there can be none now.
func (t *transfers) describe(g *group) (*pb.Snapshot, error) {
	if t.sending >= t.opts.MaxSnapshotsOut+t.opts.MaxSnapshotsQueued || t.now < g.transfer.retryAt {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	index, term := t.opts.Snapshots.StateIndex(g.shard)
	if f := g.sendable(); f != nil {
		h := f.Header()
		index, term = h.Index, h.Term
	}
	if first, _ := g.log.FirstIndex(); index == 0 || index < first-1 || index < g.conf.Index {
		// Members that the last change brought would find themselves missing
		// in an older state, and ignore it.
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return wire.SnapshotOf(index, uint64(term), g.conf.State), nil
}

// sendable is the group's file if a follower can go on from it: the log is
// there from its index on, and has had no change of members since.
func (g *group) sendable() *snapdir.Sent {
	f := g.transfer.file
	if f == nil || f.Failed() || f.Header().Index < g.conf.Index {
		return nil
	}
	if first, _ := g.log.FirstIndex(); f.Header().Index < first-1 {
		return nil
	}
	return f
}

// ship adds raft's message to the snapshots that a turn hands out, if anybody
// knows its receiver's node.
func (t *transfers) ship(out []*transfer.Outgoing, g *group, m *pb.Message) []*transfer.Outgoing {
	header := wire.SnapshotHeader{
		Shard: g.shard, From: sharding.ReplicaID(g.replica), To: sharding.ReplicaID(m.GetTo()), Term: sharding.Term(m.GetTerm()),
	}
	t.sending++
	n := g.routes.Locate(m.GetTo())
	if n == nil {
		t.unsent = append(t.unsent, transfer.New(header, ""))
		return out
	}
	return append(out, transfer.New(header, n.ID))
}

// begin decides which state is sent, which may be of another index than raft was
// told, and pins the log behind it from now on: that of the group's file, or one
// that is to be written to a file. A direct one is sent as it is read.
// Core.SnapshotSent follows an error too.
func (t *transfers) begin(g *group, o *transfer.Outgoing, direct bool) error {
	t.leave(g, o)
	if g == nil || g.replica != uint64(o.From) || !g.leader {
		return raft.ErrSnapshotTemporarilyUnavailable
	}
	var h statefile.Header
	var state statefile.Pinned
	var file *snapdir.Sent
	if f := g.sendable(); f != nil && !direct {
		h, file = f.Header(), f
	} else {
		var err error
		if state, err = t.opts.Snapshots.Pin(g.shard); err != nil {
			return err
		}
		h = state.Header()
		if h.Index < g.conf.Index || h.Index < g.log.Cut() {
			state.Close()
			return raft.ErrSnapshotTemporarilyUnavailable
		}
		if !direct {
			file = t.newFile(g, h)
		}
	}
	o.Index, o.IndexTerm = h.Index, h.Term
	o.Members = wire.Membership{Index: g.conf.Index, State: proto.Clone(g.conf.State).(*pb.ConfState)}
	o.Begin(t.files, state, file, g.transfer.pins.Set(uint64(o.To), h.Index))
	return nil
}

// newFile begins a file of the group, in the place of any that it has.
func (t *transfers) newFile(g *group, head statefile.Header) *snapdir.Sent {
	f := t.files.NewSent(g.shard, g.replica, head)
	t.forgetFile(g)
	g.transfer.file = f
	t.tended(g)
	return f
}

// forgetFile takes the file from the group. It goes when it is sent no more.
func (t *transfers) forgetFile(g *group) {
	f := g.transfer.file
	g.transfer.file = nil
	if f != nil && !f.Used() {
		t.files.DiscardSent(f)
	}
}

// leave says that a snapshot is sent from its file no more.
func (t *transfers) leave(g *group, o *transfer.Outgoing) {
	f := o.Leave()
	if f == nil {
		return
	}
	if g != nil && g.transfer.file == f && f.Failed() {
		g.transfer.file = nil
	}
	if !f.Used() && (g == nil || g.transfer.file != f) {
		t.files.DiscardSent(f)
	}
}

// sent notes what became of a snapshot, and says what raft is told: whether it
// arrived, and whether the replica that sent it is still there.
func (t *transfers) sent(g *group, o *transfer.Outgoing, err error) (status raft.SnapshotStatus, there bool) {
	o.Release()
	t.sending--
	until := t.now // a snapshot without a file, or of a damaged one, begins anew
	if damage := o.Damage(); damage != nil {
		t.stats.SnapshotFilesDamaged++
		t.opts.Logger.Error("the file of a snapshot is damaged, and is written again", "shard_id", uint64(o.Shard), "error", damage)
		if g != nil && g.transfer.file == o.File() {
			g.transfer.file = nil
		}
	} else if f := o.File(); f != nil && !f.Failed() {
		until += waitTicks
	}
	if o.Resumed() {
		t.stats.SnapshotsResumed++
	}
	t.leave(g, o)
	if g == nil || g.replica != uint64(o.From) || g.failed {
		return 0, false
	}
	of := &g.transfer
	if err == nil {
		of.failures, of.retryAt = 0, 0
		of.pins.End(uint64(o.To), t.now+raftlog.StandTicks)
		of.pins.Arrived(uint64(o.To), o.Index)
		return raft.SnapshotFinish, true
	}
	of.pins.End(uint64(o.To), until)
	of.retryAt = t.now + min(uint64(1)<<min(of.failures, 10), maxRetryTicks)
	of.failures++
	t.opts.Logger.Debug("snapshot not sent", "shard_id", uint64(o.Shard), "replica_id", uint64(o.To), "index", o.Index, "error", err)
	return raft.SnapshotFailure, true
}

// pinned ends the pins that are over and reports whether others go on.
func (t *transfers) pinned(g *group) bool {
	pins := &g.transfer.pins
	if !pins.Any() {
		return false
	}
	near := max(g.log.TailIndex(t.opts.RetainBytes/2), g.log.Cut())
	pins.Tend(t.now, near, g.node.Status().Progress)
	return pins.Any() && g.leader
}

// tended makes the group one whose files are looked after.
func (t *transfers) tended(g *group) {
	if !slices.Contains(t.filed, g) {
		t.filed = append(t.filed, g)
	}
}

// tick gives up the files of snapshots that nobody goes on with: those that have
// waited for too long, that are of no use any more, or for which there is no
// room.
func (t *transfers) tick() {
	t.now++
	if t.now%tendEvery != 0 || len(t.filed) == 0 {
		return
	}
	short := t.files.Fits(0) != nil
	t.filed = slices.DeleteFunc(t.filed, func(g *group) bool {
		of := &g.transfer
		if p := of.part; p != nil {
			old := p.Index() != 0 && p.Index() <= g.hard.Commit
			if short || old || t.now-p.Since() > waitTicks {
				t.forgetPart(g)
			}
		}
		if f := of.file; f != nil && !f.Used() && (g.failed || !t.pinned(g) || !of.pins.Awaited(f.Header().Index, t.now)) {
			t.forgetFile(g)
		}
		return g.removed || of.part == nil && of.file == nil
	})
}

// keepLog keeps the entries that the log is about to be cut of where a snapshot
// is under way. Where there is no room for them, or they cannot be written, the
// snapshot is sent in vain, and another one begins behind it.
func (t *transfers) keepLog(g *group) {
	if !t.pinned(g) || t.files == nil {
		g.log.ForgetBehind()
		return
	}
	pins := &g.transfer.pins
	name := fmt.Sprintf("%08x-%016x.catchup", uint32(g.shard), g.replica)
	if err := g.log.Keep(t.files, name, pins.From(), g.written.Cut); err != nil {
		pins.Drop()
		t.stats.SnapshotsOutrun++
		t.opts.Logger.Warn("a snapshot under way begins anew: the log behind it could not be held", "shard_id", uint64(g.shard), "error", err)
	}
}

// forget gives up what a removed group had of snapshots.
func (t *transfers) forget(g *group) {
	if g.install.Index != 0 {
		t.files.Discard(g.fileName())
	}
	if in := g.transfer.incoming; in != nil && in.Stepped {
		t.discard(in, ErrUnknownShard)
	}
	g.transfer.incoming = nil
	t.forgetPart(g)
	t.forgetFile(g)
}

// spend gives up the file of a snapshot that the state machine holds durably as
// of the recorded watermark: a restart finds its life whole.
func (t *transfers) spend(g *group, durable uint64) {
	if g.install.Index != 0 && durable >= g.install.Index {
		t.files.Discard(g.fileName())
		g.install, g.written.Install = wire.InstallImage{}, wire.InstallImage{}
	}
}

// discard gives up a snapshot that came, and its file.
func (t *transfers) discard(in *transfer.Incoming, err error) {
	t.files.Discard(in.Name())
	in.End(err)
}

// unexpect forgets a snapshot that was not stepped, but what there is of it.
func (t *transfers) unexpect(g *group, in *transfer.Incoming) {
	t.keepPart(g, in)
	if g != nil && g.transfer.incoming == in {
		g.transfer.incoming = nil
	}
}

// keepPart puts a part back that nothing comes of at the moment.
func (t *transfers) keepPart(g *group, in *transfer.Incoming) {
	p := in.Part()
	switch {
	case p == nil || p.Empty():
	case g == nil || g.replica != uint64(in.To):
		t.files.DiscardPart(p)
	default:
		t.foundPart(g, p)
	}
}

// foundPart gives a group what there is of a snapshot for it.
func (t *transfers) foundPart(g *group, p *snapdir.Part) {
	t.files.Keep(p, t.now)
	g.transfer.part = p
	t.tended(g)
}

// takePart takes the group's part out, to be written to.
func (t *transfers) takePart(g *group) *snapdir.Part {
	p := g.transfer.part
	t.files.Take(p)
	g.transfer.part = nil
	return p
}

// forgetPart gives up what has come of a snapshot.
func (t *transfers) forgetPart(g *group) {
	if g.transfer.part != nil {
		t.files.DiscardPart(t.takePart(g))
	}
}
