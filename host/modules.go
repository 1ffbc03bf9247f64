package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/registry"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// others are the members that are up and heard, without this node.
func (n *Node) others() []sharding.NodeID {
	var out []sharding.NodeID
	for _, m := range n.metadata.View().Members() {
		if m.Node != n.id.Node && m.Status != meta.StatusDown && n.peers.Heard(m.Node) {
			out = append(out, m.Node)
		}
	}
	return out
}

// spread stores a module that is here on other nodes, and returns when a
// majority of the members has it: one that is acknowledged outlives any
// minority.
func (n *Node) spread(ctx context.Context, digest journal.Digest, wasm []byte) error {
	members := 0
	for _, m := range n.metadata.View().Members() {
		if m.Status != meta.StatusDown {
			members++
		}
	}
	need := members/2 + 1
	stored := n.each(n.others(), func(node sharding.NodeID) error {
		return n.peers.PutBlob(ctx, node, peer.Digest(digest), int64(len(wasm)), bytes.NewReader(wasm))
	})
	if have := 1 + stored.succeeded; have < need {
		return fmt.Errorf("store the module on a majority: %d of %d nodes have it: %w", have, members, errors.Join(rpc.ErrNoMajority, stored.err))
	}
	return nil
}

// tally is what came of a call to several nodes.
type tally struct {
	succeeded int
	err       error // joined
}

// each calls nodes at once and waits for all.
func (n *Node) each(nodes []sharding.NodeID, call func(sharding.NodeID) error) tally {
	errs := make([]error, len(nodes))
	var calls sync.WaitGroup
	for i, node := range nodes {
		calls.Go(func() { errs[i] = call(node) })
	}
	calls.Wait()
	t := tally{err: errors.Join(errs...)}
	for _, err := range errs {
		if err == nil {
			t.succeeded++
		}
	}
	return t
}

// fetch gets a module that is not here from a node that has it: from holder
// first, where that is given.
func (n *Node) fetch(ctx context.Context, digest journal.Digest, holder sharding.NodeID) error {
	if _, err := n.modules.Get(digest); err == nil {
		return nil
	}
	from := n.others()
	if holder != "" && holder != n.id.Node {
		from = slices.Insert(slices.DeleteFunc(from, func(id sharding.NodeID) bool { return id == holder }), 0, holder)
	}
	var errs []error
	for _, node := range from {
		var wasm bytes.Buffer
		_, err := n.peers.GetBlob(ctx, node, peer.Digest(digest), &wasm)
		if err == nil {
			_, _, err = n.modules.Put(wasm.Bytes())
			return err
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("fetch module %s: %w", digest, errors.Join(append(errs, rpc.ErrModuleNotLoaded)...))
}

// module returns a compiled module, fetched first where it is not here.
func (n *Node) module(ctx context.Context, digest journal.Digest, holder sharding.NodeID) (*engine.Module, error) {
	m, err := n.modules.Module(ctx, digest)
	var damaged *registry.DamagedError
	if !errors.Is(err, registry.ErrNotFound) && !errors.As(err, &damaged) {
		return m, err
	}
	if ferr := n.fetch(ctx, digest, holder); ferr != nil {
		return nil, errors.Join(err, ferr)
	}
	return n.modules.Module(ctx, digest)
}

// prepareModule answers another node that is about to activate a module.
func (n *Node) prepareModule(ctx context.Context, digest journal.Digest, holder sharding.NodeID) error {
	_, err := n.module(ctx, digest, holder)
	return err
}

// prepareEverywhere returns when every node that can be reached has the module
// compiled.
func (n *Node) prepareEverywhere(ctx context.Context, digest journal.Digest) error {
	done := n.each(n.others(), func(node sharding.NodeID) error {
		err := n.peers.Prepare(ctx, node, peer.Digest(digest), n.id.Node)
		if err != nil && !n.peers.Heard(node) {
			return nil // it went away meanwhile
		}
		return err
	})
	if done.err != nil {
		return fmt.Errorf("prepare module %s on every node: %w", digest, errors.Join(rpc.ErrNoMajority, done.err))
	}
	return nil
}

// servedEverywhere returns when every node that can be reached serves the
// bindings up to the revision.
func (n *Node) servedEverywhere(ctx context.Context, revision uint64) error {
	done := n.each(n.others(), func(node sharding.NodeID) error {
		err := n.peers.AwaitBindings(ctx, node, revision)
		if err != nil && !n.peers.Heard(node) {
			return nil // it went away meanwhile
		}
		return err
	})
	if done.err != nil {
		return fmt.Errorf("the module is active, and not served on every node yet: %w", errors.Join(rpc.ErrNoMajority, done.err))
	}
	return nil
}
