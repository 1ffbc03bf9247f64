package main

import (
	"fmt"
	"time"
)

// clusterChange is one thing that became different in the cluster.
type clusterChange struct {
	Time   time.Time `json:"time"`
	NodeID string    `json:"nodeId,omitempty"` // that it is about; empty for the cluster
	What   string    `json:"what"`             // "coordinator", "quorum", "status", "reachable", "address", "leaderCount", "replicaCount", "version" or "member"
	From   any       `json:"from"`             // null where there was nothing
	To     any       `json:"to"`               // null where nothing is left
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
		return clean(fmt.Sprint(v))
	}
	return fmt.Sprintf("%s  %s  %s  %s -> %s", c.Time.Format(time.RFC3339), clean(about), c.What, show(c.From), show(c.To))
}

// clusterChanges compares two views; before the first there was nothing.
func clusterChanges(before *clusterView, now clusterView) []clusterChange {
	var out []clusterChange
	add := func(node, what string, from, to any) {
		if from != to {
			out = append(out, clusterChange{NodeID: node, What: what, From: from, To: to})
		}
	}
	was := map[string]memberView{}
	if before == nil {
		add("", "coordinator", nil, now.Coordinator)
		add("", "quorum", nil, now.Quorum)
	} else {
		add("", "coordinator", before.Coordinator, now.Coordinator)
		add("", "quorum", before.Quorum, now.Quorum)
		for _, m := range before.Members {
			was[m.NodeID] = m
		}
	}
	for _, m := range now.Members {
		old, known := was[m.NodeID]
		delete(was, m.NodeID)
		if !known {
			add(m.NodeID, "member", nil, m.Status)
			add(m.NodeID, "leaderCount", uint32(0), m.LeaderCount)
			add(m.NodeID, "replicaCount", uint32(0), m.ReplicaCount)
			continue
		}
		add(m.NodeID, "status", old.Status, m.Status)
		add(m.NodeID, "reachable", old.Reachable, m.Reachable)
		add(m.NodeID, "address", old.Address, m.Address)
		add(m.NodeID, "leaderCount", old.LeaderCount, m.LeaderCount)
		add(m.NodeID, "replicaCount", old.ReplicaCount, m.ReplicaCount)
		add(m.NodeID, "version", old.Version, m.Version)
	}
	if before != nil {
		for _, m := range before.Members {
			if _, gone := was[m.NodeID]; gone {
				add(m.NodeID, "member", m.Status, nil)
			}
		}
	}
	return out
}
