package meta

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// MaxLeft limits how many former members are remembered. If it is exceeded, the
// node with the lowest incarnation is forgotten.
const MaxLeft = 1024

// leftNode is the stored form.
type leftNode struct {
	Incarnation uint64 `json:"incarnation"` // incarnation of its last process
	// Disk is set if the node was asked to leave. A node that was removed
	// because it was dead may join again with its disk.
	Disk string `json:"disk,omitempty"`
}

// LeftNode is a node that was a member.
type LeftNode struct {
	Node        sharding.NodeID
	Incarnation uint64 // incarnation of its last process
	// Disk is the disk with which the node must not join again. It is empty if the
	// node was not asked to leave but was removed because it was dead.
	Disk string
}

// LeftNodes returns the former members, sorted by name.
func (v *View) LeftNodes() []LeftNode {
	out := make([]LeftNode, 0, len(v.left))
	for _, node := range slices.Sorted(maps.Keys(v.left)) {
		l := v.left[node]
		out = append(out, LeftNode{node, l.Incarnation, l.Disk})
	}
	return out
}

// hasLeftWith reports whether the node was asked to leave, and has left with
// the given disk.
func (v *View) hasLeftWith(node sharding.NodeID, disk string) bool {
	l, left := v.left[node]
	return left && l.Disk != "" && l.Disk == disk
}

// HasLeft reports whether the node is a former member. It distinguishes a
// completed leave request from a request for a node that was never a member.
// The record is kept from sharding.VersionFormerMembers on, until the node
// joins again.
func (v *View) HasLeft(node sharding.NodeID) bool {
	_, left := v.left[node]
	_, down := v.downed[node]
	return left || down
}

// LastStart returns the newest incarnation of a node that the metadata knows,
// or 0 if it knows none. A former member is known as long as HasLeft reports
// it.
func (v *View) LastStart(node sharding.NodeID) uint64 {
	return max(v.members[node].Incarnation, v.left[node].Incarnation, v.downed[node])
}

// rememberLeft records that a member is removed.
func (t *transition) rememberLeft(m Member) {
	if t.view.ClusterVersion() < sharding.VersionFormerMembers {
		return
	}
	left := leftNode{Incarnation: m.Incarnation}
	if m.Status == StatusLeaving || m.Leaving {
		left.Disk = m.Disk
	}
	put(&t.view.left, m.Node, left)
	t.store(prefixLeft+string(m.Node), left)
	if len(t.view.left) <= MaxLeft {
		return
	}
	nodes := slices.Sorted(maps.Keys(t.view.left))
	t.forgetLeft(slices.MinFunc(nodes, func(a, b sharding.NodeID) int {
		return cmp.Compare(t.view.left[a].Incarnation, t.view.left[b].Incarnation)
	}))
}

// forgetLeft removes the record of a node.
func (t *transition) forgetLeft(node sharding.NodeID) {
	if _, known := t.view.left[node]; !known {
		return
	}
	next := maps.Clone(t.view.left)
	delete(next, node)
	t.view.left = next
	t.writes = append(t.writes, KV{Key: []byte(prefixLeft + string(node))})
}

func (v *View) restoreLeft(node sharding.NodeID, value []byte) error {
	var left leftNode
	if err := unwrap(value, &left); err != nil {
		return err
	}
	if node == "" {
		return errors.New("invalid former member")
	}
	v.left[node] = left
	return nil
}
