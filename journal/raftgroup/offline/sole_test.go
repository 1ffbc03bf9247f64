package offline

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	pb "go.etcd.io/raft/v3/raftpb"
)

// TestMakeSoleFromAnyMembership: whatever the membership is, the appended entries
// make the replica its only member.
func TestMakeSoleFromAnyMembership(t *testing.T) {
	for name, state := range map[string]*pb.ConfState{
		"voters":                {Voters: []uint64{1, 2, 3}},
		"learners":              {Voters: []uint64{1, 2, 3}, Learners: []uint64{4}},
		"a learner":             {Voters: []uint64{2, 3}, Learners: []uint64{1, 4}},
		"on the way":            {Voters: []uint64{1, 4}, VotersOutgoing: []uint64{1, 2, 3}},
		"on the way out":        {Voters: []uint64{4, 5}, VotersOutgoing: []uint64{1, 2, 3}},
		"to become a learner":   {Voters: []uint64{4, 5}, VotersOutgoing: []uint64{1, 2}, LearnersNext: []uint64{1}},
		"with an automatic end": {Voters: []uint64{1, 4}, VotersOutgoing: []uint64{1, 2}, AutoLeave: new(true)},
	} {
		state.AutoLeave = new(state.GetAutoLeave())
		s := wire.Section{Shard: 7, Replica: 1, First: 11}
		gone, err := removeOthers(&s, 9, state, "by hand")
		if err != nil || len(gone) == 0 || slices.Contains(gone, 1) {
			t.Errorf("%s: %v, %v", name, gone, err)
			continue
		}
		g := recovery.Replica{Shard: 7, Replica: 6, Log: raftlog.New(10, 8)} // another replica, which has the log from this index on
		g.Image.Conf = wire.Membership{Index: 10, State: state}
		g.Log.Append(s.Ents)
		after, err := g.MembersAt(g.Log.Last())
		if err != nil || fmt.Sprint(after.GetVoters(), after.GetLearners(), after.GetVotersOutgoing(), after.GetLearnersNext()) != "[1] [] [] []" {
			t.Errorf("%s: %v, %v", name, after, err)
		}
		if s.Conf.State.String() != after.String() || s.Conf.Index != g.Log.Last() || s.Hard.Commit != g.Log.Last() {
			t.Errorf("%s: the record says %+v, %+v", name, s.Conf, s.Hard)
		}
	}
}
