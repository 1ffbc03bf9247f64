package meta

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// MaxLeft bounds the nodes that are remembered as having left. Past it the one
// with the earliest start is forgotten.
const MaxLeft = 1024

// leftNode is the stored value.
type leftNode struct {
	Incarnation uint64 `json:"incarnation"` // its last start
	// Disk is that of a node that was ordered to leave. One that was removed for
	// being dead joins again with the disk that it has.
	Disk string `json:"disk,omitempty"`
}

// LeftNode is a node that was ordered to leave and has left.
type LeftNode struct {
	Node        sharding.NodeID
	Incarnation uint64 // its last start
	Disk        string // with which it does not join again
}

// Left returns the nodes that were ordered to leave and have left, by name.
func (v *View) Left() []LeftNode {
	out := make([]LeftNode, 0, len(v.left))
	for _, node := range slices.Sorted(maps.Keys(v.left)) {
		if l := v.left[node]; l.Disk != "" {
			out = append(out, LeftNode{node, l.Incarnation, l.Disk})
		}
	}
	return out
}

// hasLeftWith reports whether a node was ordered to leave, and has left with the
// disk.
func (v *View) hasLeftWith(node sharding.NodeID, disk string) bool {
	l, left := v.left[node]
	return left && l.Disk != "" && l.Disk == disk
}

// HasLeft reports whether a node was a member and is none any more: an order to
// leave is carried out then, and not one for a node that never was. The metadata
// keeps it from sharding.VersionFormerMembers on, until the node joins again.
func (v *View) HasLeft(node sharding.NodeID) bool {
	_, left := v.left[node]
	_, down := v.downed[node]
	return left || down
}

// rememberLeft keeps that a member is removed.
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

// forgetLeft drops what was kept of a node.
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
		return errors.New("no node that has left")
	}
	v.left[node] = left
	return nil
}
