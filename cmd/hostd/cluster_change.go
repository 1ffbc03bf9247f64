package main

import (
	"fmt"
	"iter"
	"time"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// clusterChange is one change of the cluster.
type clusterChange struct {
	Time   time.Time `json:"time"`
	NodeID string    `json:"nodeId,omitempty"` // the changed node; empty for the cluster
	What   string    `json:"what"`             // "coordinator", "quorum", "status", "reachable", "address", "leaderCount", "replicaCount", "version" or "member"
	From   any       `json:"from"`             // null if there was no value
	To     any       `json:"to"`               // null if there is no value now
}

func (c clusterChange) text() string {
	about := "cluster"
	if c.NodeID != "" {
		about = "node " + c.NodeID
	}
	show := func(v any) string {
		if v == nil || v == "" {
			return "-"
		}
		return cli.Clean(fmt.Sprint(v))
	}
	return fmt.Sprintf("%s  %s  %s  %s -> %s", c.Time.Format(time.RFC3339), cli.Clean(about), c.What, show(c.From), show(c.To))
}

// changesOf yields the differences between each state of the cluster and the
// previous state.
func changesOf[S clusterState](states iter.Seq2[S, error]) iter.Seq2[clusterChange, error] {
	return func(yield func(clusterChange, error) bool) {
		var before clusterState
		for now, err := range states {
			if err != nil {
				yield(clusterChange{}, err)
				return
			}
			for _, change := range clusterChanges(before, now) {
				change.Time = time.Now().UTC()
				if !yield(change, nil) {
					return
				}
			}
			before = now
		}
	}
}

// clusterChanges compares two states. The state before the first state is
// empty.
func clusterChanges(before, now clusterState) []clusterChange {
	var out []clusterChange
	add := func(node, what string, from, to any) {
		if from != to {
			out = append(out, clusterChange{NodeID: node, What: what, From: from, To: to})
		}
	}
	was := map[string]*clusterv1.Member{}
	if before == nil {
		add("", "coordinator", nil, now.GetCoordinator())
		add("", "quorum", nil, now.GetQuorum())
	} else {
		add("", "coordinator", before.GetCoordinator(), now.GetCoordinator())
		add("", "quorum", before.GetQuorum(), now.GetQuorum())
		for _, m := range before.GetMembers() {
			was[m.GetNodeId()] = m
		}
	}
	for _, m := range now.GetMembers() {
		old, known := was[m.GetNodeId()]
		delete(was, m.GetNodeId())
		if !known {
			add(m.GetNodeId(), "member", nil, m.GetStatus())
			add(m.GetNodeId(), "leaderCount", uint32(0), m.GetLeaderCount())
			add(m.GetNodeId(), "replicaCount", uint32(0), m.GetReplicaCount())
			continue
		}
		add(m.GetNodeId(), "status", old.GetStatus(), m.GetStatus())
		add(m.GetNodeId(), "reachable", old.GetReachable(), m.GetReachable())
		add(m.GetNodeId(), "address", old.GetAddress(), m.GetAddress())
		add(m.GetNodeId(), "leaderCount", old.GetLeaderCount(), m.GetLeaderCount())
		add(m.GetNodeId(), "replicaCount", old.GetReplicaCount(), m.GetReplicaCount())
		add(m.GetNodeId(), "version", old.GetVersion(), m.GetVersion())
	}
	if before != nil {
		for _, m := range before.GetMembers() {
			if _, gone := was[m.GetNodeId()]; gone {
				add(m.GetNodeId(), "member", m.GetStatus(), nil)
			}
		}
	}
	return out
}
