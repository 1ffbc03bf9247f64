package coordinator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

func replicaText(r meta.Replica) string { return fmt.Sprintf("%d@%s:%s", r.ID, r.Node, r.State) }

// placementOf parses "1 2 3l 4x 5v!": voters, learners, leaving, lost.
func placementOf(text string) meta.Placement {
	p := meta.Placement{Shard: 1}
	for _, w := range strings.Fields(text) {
		r := meta.Replica{State: meta.ReplicaVoter, Lost: strings.HasSuffix(w, "!")}
		w = strings.TrimSuffix(w, "!")
		switch w[len(w)-1] {
		case 'l':
			r.State = meta.ReplicaLearner
		case 'x':
			r.State = meta.ReplicaLeaving
		}
		fmt.Sscan(strings.TrimRight(w, "lxv"), &r.ID)
		r.Node = sharding.NodeID(fmt.Sprint("n", r.ID))
		p.Replicas = append(p.Replicas, r)
	}
	return p
}

// confOf parses "1 2 3l | 1 4": members, then outgoing voters. "3=7" has match
// index 7, and "3?" is unreachable. All others match the commit index of 1000.
func confOf(text string) coordinator.Conf {
	c := coordinator.Conf{Self: 1, Commit: 1000, Match: map[sharding.ReplicaID]uint64{}, Next: 10}
	members, outgoing, _ := strings.Cut(text, "|")
	for _, w := range strings.Fields(members) {
		w, silent := strings.CutSuffix(w, "?")
		w, match, lags := strings.Cut(w, "=")
		w, learner := strings.CutSuffix(w, "l")
		var r sharding.ReplicaID
		fmt.Sscan(w, &r)
		c.Match[r] = c.Commit
		if lags {
			var m uint64
			fmt.Sscan(match, &m)
			c.Match[r] = m
		}
		if silent {
			c.Unreachable = append(c.Unreachable, r)
		}
		if learner {
			c.Learners = append(c.Learners, r)
		} else {
			c.Voters = append(c.Voters, r)
		}
	}
	for _, w := range strings.Fields(outgoing) {
		var r sharding.ReplicaID
		fmt.Sscan(w, &r)
		c.Outgoing = append(c.Outgoing, r)
	}
	return c
}

func TestConverge(t *testing.T) {
	tests := []struct{ name, placement, conf, want string }{
		{"as it should be", "1 2 3", "1 2 3", ""},
		{"with a learner", "1 2l", "1 2l", ""},
		{"new ones are learners", "1 2l 3l", "1", "learners [2 3]"},
		{"even those that are to vote", "1 2 3", "1", "learners [2 3]"},
		{"two at once", "1 2 3", "1 2l 3l", "voters [2 3]"},
		{"not before both have caught up", "1 2 3", "1 2l 3l=900", ""},
		{"near enough", "1 2 3", "1 2l 3l=938", "voters [2 3]"},
		{"never answered", "1 2 3", "1 2l 3l=0", ""},
		{"not while one is silent", "1 2 3", "1 2l 3l?", ""},
		{"a swap in one change", "1 2 3x 4", "1 2 3 4l", "voters [4] remove [3]"},
		{"a swap waits for the new one", "1 2 3x 4", "1 2 3 4l=5", ""},
		{"no vote is taken before", "1 2 3x 4", "1 2 3", "learners [4]"},
		{"a swap for a dead one", "1 2 3x 4", "1 2 3? 4l", "voters [4] remove [3]"},
		{"a swap that would leave no quorum", "1 2 3x 4", "1 2? 3 4l?", ""},
		{"a swap that leaves just one", "1 2 3x 4", "1 2? 3 4l", "voters [4] remove [3]"},
		{"a lost voter goes first", "1 2 3x!", "1 2 3?", "remove [3]"},
		{"unless a quorum would not be left", "1 2 3x!", "1 2? 3?", ""},
		{"a learner goes at once", "1 2 3 4x", "1 2 3 4l", "remove [4]"},
		{"even while another is waited for", "1 2 3 4x", "1 2 3l=1 4l", "remove [4]"},
		{"less voters", "1 2l 3x", "1 2 3", "learners [2] remove [3]"},
		{"a joint one is waited for", "1 2 3", "1 2 3 | 1 4", ""},
		{"the leader hands over before it goes", "1x 2 3 4", "1 2=990 3 4l", "transfer 3"},
		{"and before it loses its vote", "1l 2 3 4", "1 2 3 4l", "transfer 2"},
		{"not to one that is silent", "1x 2 3 4", "1 2? 3=995 4l", "transfer 3"},
		{"not to a learner, which votes first", "1x 2", "1 2l", "voters [2]"},
		{"then it hands over", "1x 2", "1 2", "transfer 2"},
		{"not to one that is to go as well", "1x 2x 3 4 5", "1 2 3l 4l 5l", "voters [3 4 5]"},
		{"a leader without a vote hands over", "1x 2 3", "2 3", "transfer 2"},
		{"a learner that was forgotten", "1 2 3", "1 2 3 9l", "remove [9]"},
		{"a voter that was forgotten", "1 2 3", "1 2 9 3l", "voters [3] remove [9]"},
		{"a member newer than the view", "1 2 3", "1 2 3 10l", ""},
		{"a voter newer than the view", "1 2 3", "1 2 11", ""},
		{"a lost voter is not added again", "1 2v!", "1", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ch, needed := coordinator.Converge(placementOf(tt.placement), confOf(tt.conf))
			var got []string
			for _, part := range []struct {
				name string
				ids  []sharding.ReplicaID
			}{{"voters", ch.AddVoters}, {"learners", ch.AddLearners}, {"remove", ch.Remove}} {
				if len(part.ids) > 0 {
					got = append(got, fmt.Sprint(part.name, " ", part.ids))
				}
			}
			if ch.Transfer != 0 {
				got = append(got, fmt.Sprint("transfer ", ch.Transfer))
			}
			if text := strings.Join(got, " "); text != tt.want || needed != (tt.want != "") {
				t.Errorf("got %q, %v, want %q", text, needed, tt.want)
			}
		})
	}
}
