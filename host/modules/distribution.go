package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hostd/hostd/host/status"

	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// metadata gives access to the metadata of the cluster.
type metadata interface {
	viewer
	// CatchUp waits until all currently committed metadata is applied.
	CatchUp(context.Context) error
}

// Distribution brings the cluster's modules to the nodes: to a majority of
// the nodes before an upload is acknowledged, and eventually to all nodes.
// Its methods are safe for concurrent use, and wait for other nodes until ctx
// ends.
type Distribution struct {
	self         sharding.NodeID
	metadata     metadata
	members      members
	peers        *peer.Peers
	files        *guest.Registry // modules on this node
	trust        *signing.Trust  // the signatures that this node trusts
	disk         disk
	now          func() time.Time             // clock for the age of files
	unknownSince map[journal.Digest]time.Time // when sweep first saw a file without a module in the metadata
	logger       *slog.Logger

	mu        sync.Mutex                // guards uploaders
	uploaders map[journal.Digest]string // who uploaded modules through this node, while it has their files
}

// spread copies one of this node's modules to other nodes. It returns when a
// majority of the nodes with data has the module, so that an acknowledged
// module survives the loss of any minority. Proxies do not count, because
// they may leave at any time.
func (d *Distribution) spread(ctx context.Context, digest journal.Digest, wasm []byte) error {
	others := d.members.Others()
	var to []sharding.NodeID
	hosts, have := 0, 0
	for _, m := range d.metadata.View().Members() {
		if m.Status == meta.StatusDown || m.HasRole(meta.RoleProxy) {
			continue
		}
		hosts++
		if m.Node == d.self {
			have++
		} else if slices.Contains(others, m.Node) {
			to = append(to, m.Node)
		}
	}
	stored := d.each(to, func(node sharding.NodeID) error {
		return d.peers.PutBlob(ctx, node, peer.Digest(digest), int64(len(wasm)), bytes.NewReader(wasm))
	})
	if have += stored.succeeded; have < hosts/2+1 {
		return fmt.Errorf("store the module on a majority: %d of %d nodes have it: %w", have, hosts, errors.Join(status.ErrNoMajority, stored.err))
	}
	return nil
}

// tally is the result of calls to several nodes.
type tally struct {
	succeeded int
	err       error // joined errors of the calls
}

// each calls nodes concurrently and waits for all calls.
func (d *Distribution) each(nodes []sharding.NodeID, call func(sharding.NodeID) error) tally {
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

// Fetch copies a module that is missing here from another node, from holder
// first if it is given.
func (d *Distribution) Fetch(ctx context.Context, digest journal.Digest, holder sharding.NodeID) error {
	if d.files.Check(digest) == nil {
		return nil
	}
	from := d.members.Others()
	if holder != "" && holder != d.self {
		from = slices.Insert(slices.DeleteFunc(from, func(id sharding.NodeID) bool { return id == holder }), 0, holder)
	}
	var errs []error
	for _, node := range from {
		var wasm bytes.Buffer
		_, err := d.peers.GetBlob(ctx, node, peer.Digest(digest), &wasm)
		if err == nil {
			_, _, err = d.files.Put(wasm.Bytes())
			return err
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("fetch module %s: %w", digest, errors.Join(append(errs, request.ErrModuleNotLoaded)...))
}

// Module returns a compiled module. If this node does not have the module, it
// fetches it first.
func (d *Distribution) Module(ctx context.Context, digest journal.Digest, holder sharding.NodeID) (*guest.Module, error) {
	m, err := d.files.Module(ctx, digest)
	var damaged *guest.DamagedModuleError
	if !errors.Is(err, guest.ErrModuleNotFound) && !errors.As(err, &damaged) {
		return m, err
	}
	if ferr := d.Fetch(ctx, digest, holder); ferr != nil {
		return nil, errors.Join(err, ferr)
	}
	return d.files.Module(ctx, digest)
}

// ToRun is Module for a module that is run on entities before it serves them,
// or alongside the serving module. It fails if this node requires signatures
// and does not trust the signature of the module. (For serving modules, Types
// checks the signature.)
func (d *Distribution) ToRun(ctx context.Context, digest journal.Digest, holder sharding.NodeID) (*guest.Module, error) {
	if err := d.checkSignatureHere(ctx, digest); err != nil {
		return nil, err
	}
	return d.Module(ctx, digest, holder)
}

// Prepare implements the request of another node that is about to activate a
// module.
func (d *Distribution) Prepare(ctx context.Context, digest journal.Digest, holder sharding.NodeID) error {
	_, err := d.ToRun(ctx, digest, holder)
	return err
}

// prepareEverywhere returns when every reachable node has compiled the module.
func (d *Distribution) prepareEverywhere(ctx context.Context, digest journal.Digest) error {
	done := d.each(d.members.Others(), func(node sharding.NodeID) error {
		err := d.peers.Prepare(ctx, node, peer.Digest(digest), d.self)
		if err != nil && !d.peers.IsAlive(node) {
			return nil // the node has failed meanwhile
		}
		return err
	})
	if err := fromPeer(done.err); err != nil {
		return err
	}
	if done.err != nil {
		return fmt.Errorf("prepare module %s on every node: %w", digest, errors.Join(status.ErrNoMajority, done.err))
	}
	return nil
}

// PrepareToRun is prepareEverywhere, but loads the module on this node first.
func (d *Distribution) PrepareToRun(ctx context.Context, digest journal.Digest) error {
	if _, err := d.ToRun(ctx, digest, ""); err != nil {
		return err
	}
	return d.prepareEverywhere(ctx, digest)
}

// servedEverywhere returns when every other reachable node serves the
// activations up to the revision.
func (d *Distribution) servedEverywhere(ctx context.Context, revision uint64) error {
	done := d.each(d.members.Others(), func(node sharding.NodeID) error {
		err := d.peers.AwaitActivations(ctx, node, revision)
		if err != nil && !d.peers.IsAlive(node) {
			return nil // the node has failed meanwhile
		}
		return err
	})
	if done.err != nil {
		return fmt.Errorf("the module is active, but not every node serves it yet: %w", errors.Join(status.ErrNoMajority, done.err))
	}
	return nil
}
