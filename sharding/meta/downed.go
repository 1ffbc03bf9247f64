package meta

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// MaxDowned bounds the starts that are remembered as put down. Past it the
// earliest start is forgotten.
const MaxDowned = 1024

// DownedStart is a start of a node that an operator put down. Neither it nor an
// earlier one joins again.
type DownedStart struct {
	Node        sharding.NodeID
	Incarnation uint64
}

// downedStart is the stored value.
type downedStart struct {
	Incarnation uint64 `json:"incarnation"`
}

// Downed returns the starts that operators put down and that are no members any
// more, by node. The metadata keeps them from sharding.VersionDownedStarts on. A later
// start of the node that joins removes its own.
func (v *View) Downed() []DownedStart {
	out := make([]DownedStart, 0, len(v.downed))
	for _, node := range slices.Sorted(maps.Keys(v.downed)) {
		out = append(out, DownedStart{node, v.downed[node]})
	}
	return out
}

// PutDown says whether an operator put down this start of the node, or a later
// one, be it a member still or none any more.
func (v *View) PutDown(node sharding.NodeID, incarnation uint64) bool {
	if m, member := v.members[node]; member && m.Downed && incarnation <= m.Incarnation {
		return true
	}
	down, known := v.downed[node]
	return known && incarnation <= down
}

// admitsStart refuses a start that was put down, and a disk with which the node
// has left.
func (v *View) admitsStart(m Member) error {
	if v.hasLeftWith(m.Node, m.Disk) {
		return fmt.Errorf("%w: node %s was ordered to leave, and has left the cluster with this data directory; with an empty one it joins again", ErrLeft, m.Node)
	}
	if down, known := v.downed[m.Node]; known && m.Incarnation <= down {
		return fmt.Errorf("%w: start %d of node %s: an operator put start %d down; stop the node and start it anew", ErrPutDown, m.Incarnation, m.Node, down)
	}
	return nil
}

// rememberDowned keeps the start of a member that is removed.
func (t *transition) rememberDowned(node sharding.NodeID, incarnation uint64) {
	if t.view.ClusterVersion() < sharding.VersionDownedStarts {
		return
	}
	put(&t.view.downed, node, incarnation)
	t.store(prefixDowned+string(node), downedStart{Incarnation: incarnation})
	if len(t.view.downed) <= MaxDowned {
		return
	}
	earliest := t.view.Downed()[0]
	for _, d := range t.view.Downed() {
		if d.Incarnation < earliest.Incarnation {
			earliest = d
		}
	}
	t.forgetDowned(earliest.Node)
}

// forgetDowned drops what was kept of a node.
func (t *transition) forgetDowned(node sharding.NodeID) {
	if _, known := t.view.downed[node]; !known {
		return
	}
	next := maps.Clone(t.view.downed)
	delete(next, node)
	t.view.downed = next
	t.writes = append(t.writes, KV{Key: []byte(prefixDowned + string(node))})
}

func (v *View) restoreDowned(node sharding.NodeID, value []byte) error {
	var down downedStart
	if err := unwrap(value, &down); err != nil {
		return err
	}
	if node == "" || down.Incarnation == 0 {
		return errors.New("no start that was put down")
	}
	v.downed[node] = down.Incarnation
	return nil
}
