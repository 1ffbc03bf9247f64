package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrReplaced means that another process runs under this node's name and the
// cluster accepted it, because its incarnation is later. Stop the node.
var ErrReplaced = errors.New("the node was replaced")

// askReplaced is the interval at which a node that was rejected as an older
// incarnation looks for the later one. replacedForGood is how often in a row
// it must find the later incarnation.
const (
	askReplaced     = 2 * time.Second
	replacedForGood = 3
)

// AwaitReplaced returns an ErrReplaced when another process has taken over this
// node's name. It returns ctx's error if ctx ends first. A rejection by a
// single node is only the trigger to investigate. AwaitReplaced asks for the
// entry and for the known addresses again in each round.
func AwaitReplaced(ctx context.Context, in entrance, known *AddressBook) error {
	every := time.NewTicker(askReplaced)
	defer every.Stop()
	for found := 0; ; {
		select {
		case <-every.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		e, at := in.Entry(), ""
		if e.Peers.TakeReplaced() {
			at = e.ReplacedAt(ctx, known.Addresses())
		}
		if at == "" {
			found = 0
			continue
		}
		if found++; found == replacedForGood {
			return fmt.Errorf("%w: a different process with a later start runs as node %s at %s: set a different node-id for one of them", ErrReplaced, e.Self.Node, at)
		}
	}
}

// ReplacedAt returns the address at which another process runs as this node
// with a later incarnation. The leader of the metadata shard must report
// that incarnation, and the process must answer with it; otherwise the
// result is empty. Only known addresses are asked and not the seeds, because
// nothing proves that a seed is in this cluster.
func (e Entry) ReplacedAt(ctx context.Context, known []string) string {
	e.Seeds = known
	for _, a := range e.probe(ctx) {
		if a.GetClusterId() != e.Peers.Cluster() || a.GetLeader() != a.GetNodeId() {
			continue
		}
		for _, m := range a.GetMembers() {
			if m.GetNodeId() == string(e.Self.Node) && m.GetIncarnation() > e.Self.Incarnation &&
				!e.isOwn(peersAt(m)) && runs(ctx, e.Peers, e.Peers.Cluster(), peersAt(m), e.Self.Node, m.GetIncarnation()) {
				return m.GetAddress()
			}
		}
	}
	return ""
}
