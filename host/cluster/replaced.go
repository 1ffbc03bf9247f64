package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrReplaced: another process runs under this node's name, and the cluster
// took that one's start, which is later. The node is to be stopped.
var ErrReplaced = errors.New("the node was replaced")

// How often a node that others refuse as an older start looks for the later
// one, and how often in a row it finds it before it is replaced.
const (
	askReplaced     = 2 * time.Second
	replacedForGood = 3
)

// AwaitReplaced returns an ErrReplaced once another process has taken this
// node's name, so that nobody answers this one any more; it ends with ctx too.
// That one node refuses this one is only the reason to ask. Entry and known are
// called each time.
func AwaitReplaced(ctx context.Context, entry func() Entry, known func() []string) error {
	every := time.NewTicker(askReplaced)
	defer every.Stop()
	for found := 0; ; {
		select {
		case <-every.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		e, at := entry(), ""
		if e.Peers.ToldReplaced() {
			at = e.ReplacedAt(ctx, known())
		}
		if at == "" {
			found = 0
			continue
		}
		if found++; found == replacedForGood {
			return fmt.Errorf("%w: another process runs as node %s at %s, with a later start: give one of the two another node-id", ErrReplaced, e.Self.Node, at)
		}
	}
}

// ReplacedAt is where another process runs as this node, under a later start:
// by the word of the leader of the metadata shard, and that process answers for
// it. Only the known addresses are asked, not the seeds, of which nothing is
// proven. It is empty while the two do not agree.
func (e Entry) ReplacedAt(ctx context.Context, known []string) string {
	e.Seeds = known
	h := Hearsay{Probe: e.Peers.Probe, Cluster: e.Peers.Cluster}
	for _, a := range e.probe(ctx) {
		if a.GetClusterId() != e.Peers.Cluster() || a.GetLeader() != a.GetNodeId() {
			continue
		}
		for _, m := range a.GetMembers() {
			if m.GetNodeId() == string(e.Self.Node) && m.GetIncarnation() > e.Self.Incarnation &&
				!e.own(peersAt(m)) && h.runs(ctx, peersAt(m), e.Self.Node, m.GetIncarnation()) {
				return m.GetAddress()
			}
		}
	}
	return ""
}
