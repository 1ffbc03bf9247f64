package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// voter is a node with a replica of shard 4 and a checksum at index 1024.
type voter struct {
	digest  byte // - if there is no checksum
	nodes   []sharding.NodeID
	judges  map[sharding.NodeID]*ConsistencyChecker // checkers of the nodes that answer
	stopped []error
}

func (v *voter) ComparedChecksum(shard sharding.ShardID, index uint64) (journal.RowsDigest, bool) {
	return journal.RowsDigest{v.digest}, shard == 4 && index == 1024 && v.digest != '-'
}

func (v *voter) Voters(sharding.ShardID) []sharding.NodeID { return v.nodes }

func (v *voter) CompareRows(_ context.Context, to sharding.NodeID, shard sharding.ShardID, own journal.Proof) (d journal.RowsDigest, ok bool, err error) {
	if v.judges[to] == nil {
		return d, false, errors.New("no answer")
	}
	d, ok = v.judges[to].Compare(shard, own)
	return d, ok, nil
}

func (v *voter) Stop(shard sharding.ShardID, why error) {
	if shard != 4 {
		why = fmt.Errorf("shard %d was stopped", shard)
	}
	v.stopped = append(v.stopped, why)
}

// If a replica disagrees with the leader, all replicas that disagree check
// themselves, the leader included. Only replicas outside the majority stop.
// If there is no majority, all replicas stop.
func TestReplicasInMinorityStop(t *testing.T) {
	for _, tt := range []struct {
		name    string
		digests string // digests of the voters, the first of which leads; ? stands for a voter that does not answer, - for one without a checksum at the index
		stopped string // ids of the nodes that must stop
		open    bool   // a node still waits for votes
	}{
		{"a follower", "aab", "2", false},
		{"the leader", "baa", "0", false},
		{"one is silent", "aba?a", "1", false},
		{"too few", "ab?", "", true},
		{"one was filled later", "ab-", "", true},
		{"split", "abc", "012", false},
		{"two", "ab", "01", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes := make([]sharding.NodeID, len(tt.digests))
			for i := range nodes {
				nodes[i] = sharding.NodeID(rune('0' + i))
			}
			judges := make(map[sharding.NodeID]*ConsistencyChecker)
			votes := make(map[sharding.NodeID]*voter)
			for i, node := range nodes {
				if tt.digests[i] == '?' {
					continue
				}
				j := NewConsistencyChecker(node, slog.New(slog.DiscardHandler))
				v := &voter{digest: tt.digests[i], nodes: nodes, judges: judges}
				j.Open(ConsistencyCheckerOptions{Machine: v, Voters: v, Peers: v, Applier: v})
				votes[node] = v
				judges[node] = j
			}
			for i, node := range nodes {
				if d := tt.digests[i]; d != tt.digests[0] && d != '?' && d != '-' {
					judges[node].Differs(eventlog.Difference{Shard: 4, Own: journal.Proof{Index: 1024, Checksum: journal.RowsDigest{d}}})
				}
			}
			open, refused := 0, 0
			for range 4 {
				open, refused = 0, 0
				for _, node := range nodes {
					if j := judges[node]; j != nil {
						j.round(t.Context())
						open += len(j.open)
						if err := j.Refuses(4); err != nil {
							refused++
							if !errors.Is(err, journal.ErrDamaged) || j.Disputes() == nil || j.Count() != 1 {
								t.Errorf("refused with %v, ready with %v", err, j.Disputes())
							}
						}
						if j.Refuses(5) != nil {
							t.Error("another shard is refused")
						}
					}
				}
			}
			if want := open * strings.Count(tt.digests, "?"); refused != want {
				t.Errorf("%d refuse the shard, %d wait for votes", refused, open)
			}
			got := ""
			for _, node := range nodes {
				v := votes[node]
				if v == nil || len(v.stopped) == 0 {
					continue
				}
				got += strings.Repeat(string(node), len(v.stopped))
				for _, err := range v.stopped {
					if !errors.Is(err, journal.ErrDamaged) {
						t.Errorf("stopped %s: %v", node, err)
					}
				}
			}
			if got != tt.stopped || (open > 0) != tt.open {
				t.Errorf("stopped %q, %d open, want %q", got, open, tt.stopped)
			}
		})
	}
}
