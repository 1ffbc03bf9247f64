package meta

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// MaxDownedStarts limits how many downed incarnations of removed nodes are
// remembered. If the limit is exceeded, the lowest incarnation is forgotten.
const MaxDownedStarts = 1024

// DownedStart is an incarnation of a node that an operator declared dead. This
// incarnation and earlier incarnations of the node cannot join again.
type DownedStart struct {
	Node        sharding.NodeID
	Incarnation uint64
}

// downedStart is the stored form.
type downedStart struct {
	Incarnation uint64 `json:"incarnation"`
}

// DownedStarts returns, sorted by node, the incarnations that operators
// declared dead and whose nodes are no longer members. They are recorded from
// sharding.VersionDownedStarts on and removed when a later incarnation of the
// node joins.
func (v *View) DownedStarts() []DownedStart {
	out := make([]DownedStart, 0, len(v.downed))
	for _, node := range slices.Sorted(maps.Keys(v.downed)) {
		out = append(out, DownedStart{node, v.downed[node]})
	}
	return out
}

// IsDowned reports whether an operator declared this incarnation of the node,
// or a later incarnation, dead. The node need not be a member.
func (v *View) IsDowned(node sharding.NodeID, incarnation uint64) bool {
	if m, member := v.members[node]; member && m.Downed && incarnation <= m.Incarnation {
		return true
	}
	down, known := v.downed[node]
	return known && incarnation <= down
}

// checkStart rejects an incarnation that was declared dead, a disk with which
// the node has left the cluster, and an incarnation older than the node's last
// incarnation as a member. LastStart must not decrease, because it serves to
// detect older copies of a disk.
func (v *View) checkStart(m Member) error {
	if v.hasLeftWith(m.Node, m.Disk) {
		return fmt.Errorf("%w: node %s has left the cluster with this data directory; use an empty one to join again", ErrLeft, m.Node)
	}
	if down, known := v.downed[m.Node]; known && m.Incarnation <= down {
		return fmt.Errorf("%w: start %d of node %s is too old: an operator declared start %d down; restart the node", ErrNodeDowned, m.Incarnation, m.Node, down)
	}
	if _, member := v.members[m.Node]; !member && m.Incarnation < v.left[m.Node].Incarnation {
		return fmt.Errorf("%w: incarnation %d of node %s is older than that of the member that it was, %d", ErrConflict, m.Incarnation, m.Node, v.left[m.Node].Incarnation)
	}
	return nil
}

// rememberDowned records the incarnation of a removed member.
func (t *transition) rememberDowned(node sharding.NodeID, incarnation uint64) {
	if t.view.ClusterVersion() < sharding.VersionDownedStarts {
		return
	}
	put(&t.view.downed, node, incarnation)
	t.store(prefixDowned+string(node), downedStart{Incarnation: incarnation})
	if len(t.view.downed) <= MaxDownedStarts {
		return
	}
	earliest := t.view.DownedStarts()[0]
	for _, d := range t.view.DownedStarts() {
		if d.Incarnation < earliest.Incarnation {
			earliest = d
		}
	}
	t.forgetDowned(earliest.Node)
}

// forgetDowned removes the record of a node.
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
		return errors.New("invalid downed start")
	}
	v.downed[node] = down.Incarnation
	return nil
}
