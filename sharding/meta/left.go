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
}

// HasLeft reports whether a node was a member and is none any more: an order to
// leave is carried out then, and not one for a node that never was. The metadata
// keeps it from sharding.LevelLeft on, until the node joins again.
func (v *View) HasLeft(node sharding.NodeID) bool {
	_, left := v.left[node]
	_, down := v.downed[node]
	return left || down
}

// rememberLeft keeps that a member is removed.
func (t *transition) rememberLeft(node sharding.NodeID, incarnation uint64) {
	if t.view.Level() < sharding.LevelLeft {
		return
	}
	put(&t.view.left, node, incarnation)
	t.store(prefixLeft+string(node), leftNode{Incarnation: incarnation})
	if len(t.view.left) <= MaxLeft {
		return
	}
	nodes := slices.Sorted(maps.Keys(t.view.left))
	t.forgetLeft(slices.MinFunc(nodes, func(a, b sharding.NodeID) int { return cmp.Compare(t.view.left[a], t.view.left[b]) }))
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
	v.left[node] = left.Incarnation
	return nil
}
