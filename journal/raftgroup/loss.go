package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// ErrEntriesLost: the replica's log lacks entries that this replica
// acknowledged and that are committed. Its directory is an outdated copy, or the
// disk lost synced data.
var ErrEntriesLost = errors.New("raftgroup: the log lacks entries that this replica acknowledged: the data directory is an outdated copy, or the disk lost synced data")

// maxLossSigns is the number of heartbeats after which a replica believes that
// it lost entries. A single message proves nothing, because it may be forged.
const maxLossSigns = 5

// lossDetector detects that a replica has lost entries which it acknowledged.
//
// A leader never sends a commit index above the last index that the replica has
// acknowledged to it, so a heartbeat with a higher commit index than the log's
// last index proves that acknowledged entries are gone. Raft cannot repair such
// a replica: the leader assumes that the replica still has the entries and never
// sends them again, and the replica rejects the leader's heartbeats. Without
// detection it would wait until the leadership changes, and vote in that
// election although it forgot what it has acknowledged.
//
// The detector counts these heartbeats, at most one a tick, and none of a replica
// other than the known leader. A message of the leader that the log agrees with
// resets the count, because a leader that assumes lost entries sends none. So
// another replica cannot reach the limit while the leader's messages arrive.
type lossDetector struct {
	signs int
	last  uint64 // tick of the last sign
}

// onImplausible handles a message of a known replica that contradicts the log.
// now is the tick. It returns true if the replica has lost entries.
func (d *lossDetector) onImplausible(g *group, m *wire.Message, now uint64) bool {
	r := m.Raft
	if lead := g.raw.BasicStatus().Lead; lead != raft.None && lead != r.GetFrom() {
		return false
	}
	if r.GetType() != pb.MsgHeartbeat || m.Note != wire.NoteNone || r.GetTerm() < g.hard.Term || r.GetTerm() > g.hard.Term+maxTermJump || r.GetCommit() > maxIndex {
		return false
	}
	if d.signs > 0 && d.last == now {
		return false
	}
	d.last = now
	d.signs++
	return d.signs == maxLossSigns
}

// onPlausible handles a message of a known replica that does not contradict the
// log.
func (d *lossDetector) onPlausible(g *group, m *pb.Message) {
	if t := m.GetType(); d.signs > 0 && (t == pb.MsgHeartbeat || t == pb.MsgApp) && m.GetTerm() >= g.hard.Term {
		d.signs = 0
	}
}

// loseEntries makes a replica that has lost entries step aside as damaged, so
// that it neither votes nor acknowledges, and reports the failure.
func (c *Core) loseEntries(g *group, m *pb.Message) {
	c.replicaStopped(StoppedReplica{Shard: g.shard, Generation: g.generation, Reason: sharding.StopDamaged})
	if c.opts.OnGroupFailed != nil {
		err := fmt.Errorf("%w: the log ends at index %d, and its leader knows that index %d was committed with this replica", ErrEntriesLost, g.lastIndex(), m.GetCommit())
		c.stopped.failures = append(c.stopped.failures, failure{g.shard, err})
	}
}
