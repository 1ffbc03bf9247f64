package raftgroup

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// errRecovery is wrapped when the log and the state machine contradict each
// other: one of them lost what it had acknowledged.
var errRecovery = fmt.Errorf("raftgroup: recovery: %w", journal.ErrDamaged)

// Recovered is what the write-ahead log held.
type Recovered struct {
	// Watermark is the state machine's as of the last cut; the machine must be
	// opened with it before Start.
	Watermark uint64
	// Groups are the replicas on this node, by shard.
	Groups []RecoveredGroup

	groups []*group
	first  [][]sharding.ReplicaID // of each group, nil where it is not known
	former formerLives
}

// RecoveredGroup describes a replica as the log left it.
type RecoveredGroup struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
	Term    sharding.Term
	// Commit may be less than what was committed.
	Commit uint64
	// CutIndex is before the first entry, LastIndex is the last entry's.
	CutIndex, LastIndex uint64
	Voters, Learners    []sharding.ReplicaID
	// Generation counts the lives of the shard on this node: one begins with
	// each replica created after one was removed, and with each snapshot.
	Generation uint32
	// Snapshot is the index of the snapshot that this life began with and that
	// the state machine may still have to read, 0 for none.
	Snapshot uint64
}

// LastIndex is the shard's last index in the log, 0 if there is no replica of
// it. What the machine has applied up to it was applied before the start, or
// may have been.
func (r *Recovered) LastIndex(shard sharding.ShardID) uint64 {
	for i := range r.Groups {
		if r.Groups[i].Shard == shard {
			return r.Groups[i].LastIndex
		}
	}
	return 0
}

// Recover replays the log. An error that wraps journal.ErrDamaged is final:
// the node must not serve with this log.
func Recover(log Log) (*Recovered, error) {
	r := newRecovery()
	if err := log.Replay(r.record); err != nil {
		return nil, fmt.Errorf("recover groups: %w", err)
	}
	rec := &Recovered{Watermark: r.watermark, former: r.former}
	for _, shard := range slices.Sorted(maps.Keys(r.groups)) {
		g, err := r.groups[shard].finish()
		if err != nil {
			return nil, err
		}
		rec.groups = append(rec.groups, g)
		rec.first = append(rec.first, replicas(r.groups[shard].first))
		rec.Groups = append(rec.Groups, RecoveredGroup{
			Shard: g.shard, Replica: sharding.ReplicaID(g.replica), Term: sharding.Term(g.hard.term), Commit: g.hard.commit,
			CutIndex: g.log.cut, LastIndex: g.log.last(),
			Voters: replicas(g.conf.state.GetVoters()), Learners: replicas(g.conf.state.GetLearners()),
			Generation: g.generation, Snapshot: g.install.index,
		})
	}
	return rec, nil
}

func replicas(ids []uint64) []sharding.ReplicaID {
	out := make([]sharding.ReplicaID, len(ids))
	for i, id := range ids {
		out[i] = sharding.ReplicaID(id)
	}
	return out
}

// recovery rebuilds the groups record by record.
type recovery struct {
	watermark uint64
	groups    map[uint32]*recovering
	former    formerLives
	begun     bool
}

func newRecovery() *recovery {
	return &recovery{groups: map[uint32]*recovering{}, former: formerLives{}}
}

// recovering is a group of which older segments may be gone: entries before
// the cut, and those that were overwritten later, may be missing, so there can
// be gaps until the last record is read.
type recovering struct {
	g     *group
	ents  []*pb.Entry // indexes rise, with gaps
	first []uint64    // the group's first voters, as far as the log goes back
}

func (r *recovery) record(pos wal.Position, kind byte, payload []byte) error {
	if !r.begun && pos.Segment > 1 && kind != kindCheckpoint {
		return fmt.Errorf("%w: the first segment kept has no checkpoint", errRecovery)
	}
	r.begun = true
	d, version, err := open(kind, payload)
	if err == nil {
		switch kind {
		case kindCheckpoint:
			err = r.checkpoint(d, version)
		case kindTurn:
			err = r.turn(d, pos)
		case kindCut:
			err = r.cut(d)
		case kindCreate:
			err = r.create(d)
		case kindRemove:
			err = r.remove(d)
		case kindInstall:
			err = r.install(d)
		default:
			err = fmt.Errorf("%w: kind %d", journal.ErrUnsupported, kind)
		}
	}
	if err != nil {
		return fmt.Errorf("log record at %v: %w", pos, err)
	}
	return nil
}

// at finds the group that a record speaks of.
func (r *recovery) at(shard uint32, replica uint64) (*recovering, error) {
	g := r.groups[shard]
	if g == nil || g.g.replica != replica {
		return nil, fmt.Errorf("%w: replica %d of shard %d was not created", errRecovery, replica, shard)
	}
	return g, nil
}

func (r *recovery) begin(shard uint32, replica uint64) *recovering {
	g := &recovering{g: newGroup(sharding.ShardID(shard), replica)}
	r.groups[shard] = g
	return g
}

func (r *recovery) checkpoint(d *reader, version byte) error {
	r.watermark = max(r.watermark, d.u64())
	for n := d.u32(); n > 0 && !d.bad; n-- {
		i := d.image(version)
		if d.bad || i.replica == 0 {
			d.bad = true
			break
		}
		g := r.groups[i.shard]
		if g == nil {
			g = r.begin(i.shard, i.replica)
		} else if g.g.replica != i.replica {
			return fmt.Errorf("%w: checkpoint of replica %d of shard %d, which is replica %d", errRecovery, i.replica, i.shard, g.g.replica)
		}
		g.g.hard, g.g.conf = i.hard, i.conf
		if i.conf.index == 0 {
			g.first = i.conf.state.GetVoters()
		}
		g.g.generation, g.g.install = i.generation, i.install
		g.cut(i.cut, i.cutTerm)
	}
	if version >= 2 {
		r.readFormer(d)
	}
	return d.done()
}

func (r *recovery) create(d *reader) error {
	for n := d.u32(); n > 0 && !d.bad; n-- {
		shard, replica, conf := d.u32(), d.u64(), d.membership()
		if d.bad || replica == 0 {
			d.bad = true
			break
		}
		if r.groups[shard] != nil {
			return fmt.Errorf("%w: shard %d was created twice", errRecovery, shard)
		}
		begun := r.begin(shard, replica)
		begun.first = conf.state.GetVoters()
		g := begun.g
		g.conf = conf
		if f, ok := r.former[sharding.ShardID(shard)]; ok {
			if sharding.ReplicaID(replica) <= f.replica {
				return fmt.Errorf("%w: replica %d of shard %d was created after %d was removed", errRecovery, replica, shard, f.replica)
			}
			g.generation = f.generation + 1
		}
	}
	return d.done()
}

func (r *recovery) turn(d *reader, pos wal.Position) error {
	for len(d.b) > 0 && !d.bad {
		s := d.section()
		if d.bad {
			break
		}
		g, err := r.at(s.shard, s.replica)
		if err != nil {
			return err
		}
		if s.hard != nil {
			g.g.hard = *s.hard
		}
		if s.conf != nil {
			g.g.conf = *s.conf
		}
		if len(s.ents) > 0 {
			g.overwrite(s.first, s.ents)
			g.g.marked(s.first, pos)
		}
	}
	return d.done()
}

func (r *recovery) cut(d *reader) error {
	r.watermark = max(r.watermark, d.u64())
	for n := d.u32(); n > 0 && !d.bad; n-- {
		c := cutImage{d.u32(), d.u64(), d.u64(), d.u64()}
		if d.bad {
			break
		}
		g, err := r.at(c.shard, c.replica)
		if err != nil {
			return err
		}
		g.cut(c.index, c.term)
	}
	return d.done()
}

// overwrite puts entries in the place of all from first on.
func (r *recovering) overwrite(first uint64, ents []*pb.Entry) {
	for n := len(r.ents); n > 0 && r.ents[n-1].GetIndex() >= first; n-- {
		r.ents = r.ents[:n-1]
	}
	r.ents = append(r.ents, ents...)
}

// cut forgets the entries up to index.
func (r *recovering) cut(index, term uint64) {
	if index < r.g.log.cut {
		return
	}
	r.g.log.cut, r.g.log.cutTerm = index, term
	n := 0
	for n < len(r.ents) && r.ents[n].GetIndex() <= index {
		n++
	}
	r.ents = r.ents[n:]
}

// finish checks what is left: entries without a gap from the cut on, terms
// that never fall, nothing committed that is not there.
func (r *recovering) finish() (*group, error) {
	g := r.g
	term := g.log.cutTerm
	for i, e := range r.ents {
		if want := g.log.cut + 1 + uint64(i); e.GetIndex() != want {
			return nil, fmt.Errorf("%w: shard %d: entry %d is missing before %d", errRecovery, g.shard, want, e.GetIndex())
		}
		if e.GetTerm() < term {
			return nil, fmt.Errorf("%w: shard %d: the term falls at entry %d", errRecovery, g.shard, e.GetIndex())
		}
		term = e.GetTerm()
	}
	g.log.append(r.ents)
	g.written.hard, g.written.conf = g.hard, g.conf
	g.written.cut, g.written.cutTerm = g.log.cut, g.log.cutTerm
	g.written.generation, g.written.install = g.generation, g.install
	g.hard.commit = max(g.hard.commit, g.log.cut)
	if g.conf.state == nil {
		return nil, fmt.Errorf("%w: shard %d has no members", errRecovery, g.shard)
	}
	if g.hard.commit > g.log.last() {
		return nil, fmt.Errorf("%w: shard %d: entry %d is committed, the log ends at %d", errRecovery, g.shard, g.hard.commit, g.log.last())
	}
	return g, nil
}

// IsDamage says whether a recovery failed because something acknowledged is
// gone or changed: the node must not serve as its old self.
func IsDamage(err error) bool {
	var d *wal.DamageError
	return errors.Is(err, journal.ErrDamaged) || errors.As(err, &d)
}
