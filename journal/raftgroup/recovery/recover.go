package recovery

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// ErrContradiction is wrapped if the log and the state machine contradict each
// other, or the log contradicts itself: acknowledged data was lost.
var ErrContradiction = fmt.Errorf("raftgroup: recovery: %w", journal.ErrDamaged)

// Recovered is the content of the write-ahead log.
type Recovered struct {
	// Watermark is the state machine's durable version at the last truncation.
	// The machine must be opened with this version before Start.
	Watermark uint64
	// Groups are the replicas on this node, sorted by shard.
	Groups []Replica
	// Former are the removed replicas.
	Former wire.Former
}

// Replica is a replica as the log left it.
type Replica struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
	Term    sharding.Term
	// Commit is the recorded commit index, which may be lower than the real
	// commit index.
	Commit uint64
	// TruncatedIndex is the index of the last truncated entry, and LastIndex is
	// the index of the last entry.
	TruncatedIndex, LastIndex uint64
	Voters, Learners          []sharding.ReplicaID
	// Generation numbers the successive copies of the shard's data on this
	// node: each replica created after a removal and each installed snapshot
	// starts a new generation.
	Generation uint32
	// Snapshot is the index of the snapshot that this generation began with if
	// the state machine may still have to read it, otherwise 0.
	Snapshot uint64
	// First are the group's first voters, empty if the log no longer contains
	// them.
	First []sharding.ReplicaID

	// Image is the recorded state, and Hard the hard state that follows from
	// the image. The caller that continues with the replica owns Log.
	Image wire.GroupImage
	Hard  wire.HardState
	Log   *raftlog.Log
}

// Log is the part of the write-ahead log that recovery reads.
type Log interface {
	// Replay calls fn for every record, oldest first. payload is valid during
	// the call. Replay may be called once, before the first Append.
	Replay(fn func(pos wal.Position, kind byte, payload []byte) error) error
}

// Recover replays the log. An error that wraps journal.ErrDamaged is final: the
// node must not serve with this log.
func Recover(log Log) (*Recovered, error) {
	r := newRecovery()
	if err := log.Replay(r.record); err != nil {
		return nil, fmt.Errorf("recover groups: %w", err)
	}
	rec := &Recovered{Watermark: r.watermark, Former: r.former}
	for _, shard := range slices.Sorted(maps.Keys(r.groups)) {
		g, err := r.groups[shard].finish()
		if err != nil {
			return nil, err
		}
		rec.Groups = append(rec.Groups, g)
	}
	return rec, nil
}

// recovery rebuilds the groups record by record.
//
// Problem: the log interleaves the records of all groups, and segments are
// released once no group needs them. The first segment kept may therefore begin
// in the middle of every group's history: older entries are gone, and so are
// entries that were overwritten later.
//
// Approach: every segment after the first starts with a checkpoint, which holds
// the image of every group without its entries. Records are applied in order to
// the images and to sparse lists of entries, and only at the end does finish
// check each group:
//
//	checkpoint ─▶ image, truncated index      create ─▶ new group
//	turn ──────▶ hard state, members, entries remove ─▶ group deleted, kept in former
//	truncate ──▶ truncated index, watermark   install ▶ image replaced, entries dropped
//
// Invariants after the last record: the entries of a group are contiguous from
// its truncated index, their terms never decrease, and the commit index is
// within the log. If an invariant does not hold, acknowledged entries were
// lost, and the node must not start.
//
// Rejected: requiring contiguous entries after each record. A legal log
// violates that between a checkpoint and the records that follow it.
type recovery struct {
	watermark uint64
	groups    map[uint32]*groupBuilder
	former    wire.Former
	started   bool
}

func newRecovery() *recovery {
	return &recovery{groups: map[uint32]*groupBuilder{}, former: wire.Former{}}
}

// groupBuilder is a group whose older segments may be gone. Entries at or below
// the truncated index, and entries that were overwritten later, may be missing,
// so there may be gaps until the last record is read.
type groupBuilder struct {
	image wire.GroupImage
	log   *raftlog.Log // an empty log that starts after the truncated index
	ents  []*pb.Entry  // ascending indexes, possibly with gaps
	first []uint64     // the group's first voters, if the log still has them
}

func (r *recovery) record(pos wal.Position, kind byte, payload []byte) error {
	if !r.started && pos.Segment > 1 && kind != wire.KindCheckpoint {
		return fmt.Errorf("%w: the first segment does not begin with a checkpoint", ErrContradiction)
	}
	r.started = true
	d, version, err := wire.Open(kind, payload)
	if err == nil {
		switch kind {
		case wire.KindCheckpoint:
			err = r.checkpoint(d, version)
		case wire.KindTurn:
			err = r.turn(d, pos)
		case wire.KindTruncate:
			err = r.truncate(d)
		case wire.KindCreate:
			err = r.create(d)
		case wire.KindRemove:
			err = r.remove(d)
		case wire.KindInstall:
			err = r.install(d)
		default:
			err = fmt.Errorf("%w: log record of kind %d", journal.ErrUnsupported, kind)
		}
	}
	if err != nil {
		return fmt.Errorf("log record at %v: %w", pos, err)
	}
	return nil
}

// find returns the group that a record refers to.
func (r *recovery) find(shard uint32, replica uint64) (*groupBuilder, error) {
	g := r.groups[shard]
	if g == nil || g.image.Replica != replica {
		return nil, fmt.Errorf("%w: replica %d of shard %d was not created", ErrContradiction, replica, shard)
	}
	return g, nil
}

func (r *recovery) begin(shard uint32, replica uint64) *groupBuilder {
	g := &groupBuilder{image: wire.GroupImage{Shard: shard, Replica: replica}, log: raftlog.New(0, 0)}
	r.groups[shard] = g
	return g
}

func (r *recovery) checkpoint(d *wire.Reader, version byte) error {
	r.watermark = max(r.watermark, d.U64())
	for n := d.U32(); n > 0 && !d.Bad; n-- {
		i := d.Image(version)
		if d.Bad || i.Replica == 0 {
			d.Bad = true
			break
		}
		g := r.groups[i.Shard]
		if g == nil {
			g = r.begin(i.Shard, i.Replica)
		} else if g.image.Replica != i.Replica {
			return fmt.Errorf("%w: checkpoint of replica %d of shard %d, but this node's replica is %d", ErrContradiction, i.Replica, i.Shard, g.image.Replica)
		}
		g.image.Hard, g.image.Conf = i.Hard, i.Conf
		if i.Conf.Index == 0 {
			g.first = i.Conf.State.GetVoters()
		}
		g.image.Generation, g.image.Install = i.Generation, i.Install
		g.truncate(i.TruncatedIndex, i.TruncatedTerm)
	}
	if version >= 2 {
		d.Former(r.former)
	}
	return d.Done()
}

func (r *recovery) create(d *wire.Reader) error {
	for n := d.U32(); n > 0 && !d.Bad; n-- {
		shard, replica, conf := d.U32(), d.U64(), d.Membership()
		if d.Bad || replica == 0 {
			d.Bad = true
			break
		}
		if r.groups[shard] != nil {
			return fmt.Errorf("%w: shard %d was created twice", ErrContradiction, shard)
		}
		g := r.begin(shard, replica)
		g.first, g.image.Conf = conf.State.GetVoters(), conf
		if f, ok := r.former[sharding.ShardID(shard)]; ok {
			if sharding.ReplicaID(replica) <= f.Replica {
				return fmt.Errorf("%w: replica %d of shard %d was created after %d was removed", ErrContradiction, replica, shard, f.Replica)
			}
			g.image.Generation = f.Generation + 1
		}
	}
	return d.Done()
}

func (r *recovery) turn(d *wire.Reader, pos wal.Position) error {
	for len(d.B) > 0 && !d.Bad {
		s := d.Section()
		if d.Bad {
			break
		}
		g, err := r.find(s.Shard, s.Replica)
		if err != nil {
			return err
		}
		if s.Hard != nil {
			g.image.Hard = *s.Hard
		}
		if s.Conf != nil {
			g.image.Conf = *s.Conf
		}
		if len(s.Ents) > 0 {
			g.overwrite(s.First, s.Ents)
			g.log.RecordPosition(s.First, pos)
		}
	}
	return d.Done()
}

func (r *recovery) truncate(d *wire.Reader) error {
	r.watermark = max(r.watermark, d.U64())
	for n := d.U32(); n > 0 && !d.Bad; n-- {
		c := wire.TruncateImage{Shard: d.U32(), Replica: d.U64(), Index: d.U64(), Term: d.U64()}
		if d.Bad {
			break
		}
		g, err := r.find(c.Shard, c.Replica)
		if err != nil {
			return err
		}
		g.truncate(c.Index, c.Term)
	}
	return d.Done()
}

func (r *recovery) remove(d *wire.Reader) error {
	for n := d.U32(); n > 0 && !d.Bad; n-- {
		shard, replica := d.U32(), d.U64()
		if d.Bad {
			break
		}
		g, err := r.find(shard, replica)
		if err != nil {
			return err
		}
		r.former[sharding.ShardID(shard)] = wire.FormerReplica{Replica: sharding.ReplicaID(replica), Generation: g.image.Generation}
		delete(r.groups, shard)
	}
	return d.Done()
}

// install applies an install record.
func (r *recovery) install(d *wire.Reader) error {
	shard, replica, generation := d.U32(), d.U64(), d.U32()
	hard, conf, image := d.Hard(), d.Membership(), d.InstallImage()
	if err := d.Done(); err != nil {
		return err
	}
	g, err := r.find(shard, replica)
	if err != nil {
		return err
	}
	if generation <= g.image.Generation {
		return fmt.Errorf("%w: shard %d: generation %d begins after generation %d", ErrContradiction, shard, generation, g.image.Generation)
	}
	g.image.Generation, g.image.Install, g.image.Hard, g.image.Conf = generation, image, hard, conf
	g.log.Reset(image.Index, image.Term)
	g.log.ClearPositions()
	g.ents = nil
	return nil
}

// overwrite replaces all entries from first on, unless they are equal to ents.
// A log that was being rewritten in parts thus keeps its end even if the last
// parts were lost.
func (r *groupBuilder) overwrite(first uint64, ents []*pb.Entry) {
	if i, found := slices.BinarySearchFunc(r.ents, first, func(e *pb.Entry, first uint64) int { return cmp.Compare(e.GetIndex(), first) }); found {
		same := func(a, b *pb.Entry) bool { return a.GetIndex() == b.GetIndex() && a.GetTerm() == b.GetTerm() }
		if n := len(ents); i+n <= len(r.ents) && slices.EqualFunc(r.ents[i:i+n], ents, same) {
			return
		}
	}
	for n := len(r.ents); n > 0 && r.ents[n-1].GetIndex() >= first; n-- {
		r.ents = r.ents[:n-1]
	}
	r.ents = append(r.ents, ents...)
}

// truncate drops the entries up to index.
func (r *groupBuilder) truncate(index, term uint64) {
	if index < r.log.TruncatedIndex() {
		return
	}
	r.log.Reset(index, term)
	n := 0
	for n < len(r.ents) && r.ents[n].GetIndex() <= index {
		n++
	}
	r.ents = r.ents[n:]
}

// finish checks the result: entries are contiguous from the truncated index,
// terms never decrease, and every committed entry is present.
func (r *groupBuilder) finish() (Replica, error) {
	image, log := &r.image, r.log
	term := log.TruncatedTerm()
	for i, e := range r.ents {
		if want := log.TruncatedIndex() + 1 + uint64(i); e.GetIndex() != want {
			return Replica{}, fmt.Errorf("%w: shard %d: entry %d is missing before %d", ErrContradiction, image.Shard, want, e.GetIndex())
		}
		if e.GetTerm() < term {
			return Replica{}, fmt.Errorf("%w: shard %d: the term decreases at entry %d", ErrContradiction, image.Shard, e.GetIndex())
		}
		term = e.GetTerm()
	}
	log.Append(r.ents)
	image.TruncatedIndex, image.TruncatedTerm = log.TruncatedIndex(), log.TruncatedTerm()
	hard := image.Hard
	hard.Commit = max(hard.Commit, log.TruncatedIndex())
	if image.Conf.State == nil {
		return Replica{}, fmt.Errorf("%w: shard %d has no members", ErrContradiction, image.Shard)
	}
	if hard.Commit > log.Last() {
		return Replica{}, fmt.Errorf("%w: shard %d: entry %d is committed but the log ends at %d", ErrContradiction, image.Shard, hard.Commit, log.Last())
	}
	return Replica{
		Shard: sharding.ShardID(image.Shard), Replica: sharding.ReplicaID(image.Replica), Term: sharding.Term(hard.Term), Commit: hard.Commit,
		TruncatedIndex: log.TruncatedIndex(), LastIndex: log.Last(),
		Voters: wire.ReplicaIDs(image.Conf.State.GetVoters()), Learners: wire.ReplicaIDs(image.Conf.State.GetLearners()),
		Generation: image.Generation, Snapshot: image.Install.Index,
		First: wire.ReplicaIDs(r.first), Image: *image, Hard: hard, Log: log,
	}, nil
}
