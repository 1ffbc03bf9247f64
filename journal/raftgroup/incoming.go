package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
)

// KindInstall is the kind of the records that InstallRecord returns.
const KindInstall byte = kindInstall

// incoming is a snapshot on its way into a group, one at a time:
//
//	expected ─▶ in its file ─▶ stepped ─▶ in raft's ready ─▶ recorded ─▶ installed
//	                                  └─▶ ignored
type incoming struct {
	SnapshotHeader
	digest  statefile.Digest
	stepped bool
	done    func(error)
}

// Installation is a call of Snapshots.Install.
type Installation struct {
	Shard      sharding.ShardID
	Generation uint32

	name  string // of the file
	image installImage
	done  func(error)
}

// expect makes room for a snapshot that a peer offers. It returns nil for one
// of which the replica has everything, as it does when the leader did not hear
// that: raft tells it.
func (c *Core) expect(from sharding.NodeID, h SnapshotHeader) (*incoming, error) {
	g := c.groups[h.Shard]
	switch {
	case c.opts.Snapshots == nil:
		return nil, errNoSnapshots
	case g == nil || g.replica != uint64(h.To):
		return nil, ErrUnknownShard
	case g.incoming != nil:
		return nil, ErrBusy
	case uint64(h.Term) < g.hard.term:
		return nil, ErrSnapshotIgnored
	}
	if h.Index <= g.hard.commit {
		_ = g.node.Step(h.message())
		c.wake(g)
		c.touch(g)
		return nil, nil
	}
	c.learn(g, uint64(h.From), from)
	g.incoming = &incoming{SnapshotHeader: h}
	return g.incoming, nil
}

// unexpect forgets a snapshot that was not stepped.
func (c *Core) unexpect(in *incoming) {
	if g := c.groups[in.Shard]; g != nil && g.incoming == in {
		g.incoming = nil
	}
}

// stepSnapshot gives raft a snapshot that is in its file. done is called when
// its record is durable, or with the reason why there is none.
func (c *Core) stepSnapshot(in *incoming, digest statefile.Digest, done func(error)) {
	in.digest, in.done = digest, done
	g := c.groups[in.Shard]
	if g == nil || g.incoming != in {
		c.discard(in, ErrUnknownShard)
		return
	}
	in.stepped = true
	c.wake(g)
	_ = g.node.Step(in.message())
	c.touch(g)
}

// discard gives up a snapshot and its file.
func (c *Core) discard(in *incoming, err error) {
	c.obsolete = append(c.obsolete, fileName(in.Shard, in.To, in.digest))
	if in.done != nil {
		in.done(err)
	}
}

// adopt looks for the snapshot that was stepped in the ready after it, if
// there is one, and says whether it is there. It adds all that has to be
// written of the group.
func (c *Core) adopt(g *group, has bool) bool {
	in := g.incoming
	if !has || raft.IsEmptySnap(g.ready.Snapshot) {
		g.incoming = nil
		var err error // raft may have all of it already
		if g.hard.commit < in.Index {
			err = ErrSnapshotIgnored
		}
		c.discard(in, err)
		return false
	}
	if s := g.ready.Snapshot.GetMetadata(); in.Index != s.GetIndex() || uint64(in.IndexTerm) != s.GetTerm() {
		panic(fmt.Sprintf("raftgroup: shard %d: raft has a snapshot of index %d, it was given one of %d", g.shard, s.GetIndex(), in.Index))
	}
	// What else there was to be written is of a log that is gone.
	c.sections = slices.DeleteFunc(c.sections, func(p pending) bool { return p.g == g })
	c.installs = append(c.installs, g)
	c.turn.MustSync = c.turn.MustSync || planted != 30 // a snapshot acknowledged before its record is synced
	if len(g.ready.Entries) > 0 {
		h := g.hard
		c.sections = append(c.sections, pending{g, section{
			shard: uint32(g.shard), replica: g.replica, hard: &h, first: g.ready.Entries[0].GetIndex(), ents: g.ready.Entries,
		}})
	}
	return true
}

// InstallRecord returns the payload of a record that makes a snapshot of this
// turn current, to be appended before the turn's other records with kind
// KindInstall, and nil when there is none left. InstallAppended must be called
// in between. It holds the hard state too: one that claims what only the
// snapshot has committed is never in the log without it.
func (c *Core) InstallRecord() []byte {
	if c.installed == len(c.installs) {
		return nil
	}
	g := c.installs[c.installed]
	b := append(c.buf[:0], payloadVersion)
	b = le.AppendUint32(b, uint32(g.shard))
	b = le.AppendUint64(b, g.replica)
	b = le.AppendUint32(b, g.generation+1)
	b = appendHard(b, g.incoming.hard(g))
	b = appendMembership(b, g.incoming.first())
	b = appendInstallImage(b, g.incoming.image())
	c.buf = b
	return b
}

// InstallAppended follows the append of an InstallRecord.
func (c *Core) InstallAppended() {
	g := c.installs[c.installed]
	c.installed++
	in := g.incoming
	g.written = groupImage{
		shard: uint32(g.shard), replica: g.replica, hard: in.hard(g), cut: in.Index, cutTerm: uint64(in.IndexTerm),
		conf: in.first(), generation: g.generation + 1, install: in.image(),
	}
	g.hardUnwritten, g.confUnwritten, g.marks = g.hard != g.written.hard, false, nil
}

func (in *incoming) image() installImage {
	return installImage{in.Index, uint64(in.IndexTerm), in.digest}
}

// hard is the hard state without what is behind the snapshot.
func (in *incoming) hard(g *group) hardState {
	return hardState{g.hard.term, g.hard.vote, in.Index}
}

// first is the membership that the group goes on with.
func (in *incoming) first() membership { return membership{in.Index, in.members.state} }

// install makes the group what the recorded snapshot says.
func (c *Core) install(g *group) {
	in := g.incoming
	g.incoming = nil
	if g.install.index != 0 {
		c.obsolete = append(c.obsolete, g.fileName())
	}
	g.generation, g.install = g.generation+1, in.image()
	g.log.reset(in.Index, uint64(in.IndexTerm))
	g.conf, g.applied = in.first(), in.Index
	c.cutDue = true
	g.forgetRoutes()
	c.settle(g)
	c.reckon(g)
	c.turn.Installs = append(c.turn.Installs, Installation{Shard: g.shard, Generation: g.generation, name: g.fileName(), image: g.install, done: in.done})
}

// forgetSnapshots gives up what a removed group had of snapshots.
func (c *Core) forgetSnapshots(g *group) {
	if g.install.index != 0 {
		c.obsolete = append(c.obsolete, g.fileName())
	}
	if in := g.incoming; in != nil && in.stepped {
		c.discard(in, ErrUnknownShard)
	}
	g.incoming = nil
}

// spend gives up the files of snapshots that the state machine holds durably
// as of the recorded watermark: a restart finds their lives whole.
func (c *Core) spend(durable map[sharding.ShardID]uint64) {
	for _, g := range c.order {
		if g.install.index != 0 && (durable[g.shard] >= g.install.index || planted == 31) { // a file removed before the store holds it
			c.obsolete = append(c.obsolete, g.fileName())
			g.install, g.written.install = installImage{}, installImage{}
		}
	}
}

// install reads an install record.
func (r *recovery) install(d *reader) error {
	shard, replica, generation := d.u32(), d.u64(), d.u32()
	hard, conf, image := d.hard(), d.membership(), d.installImage()
	if err := d.done(); err != nil {
		return err
	}
	g, err := r.at(shard, replica)
	if err != nil {
		return err
	}
	if generation <= g.g.generation {
		return fmt.Errorf("%w: shard %d: life %d begins after life %d", errRecovery, shard, generation, g.g.generation)
	}
	g.g.generation, g.g.install, g.g.hard, g.g.conf = generation, image, hard, conf
	g.g.log.cut, g.g.log.cutTerm = image.index, image.term
	g.g.marks, g.ents = nil, nil
	return nil
}

// reset is the log behind a snapshot.
func (s *entries) reset(index, term uint64) {
	*s = entries{cut: index, cutTerm: term, hard: s.hard, conf: s.conf, describe: s.describe}
}
