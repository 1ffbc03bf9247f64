package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/registry"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Blobs are the modules' bytes on this node.
type Blobs interface {
	Get(digest journal.Digest) ([]byte, error)
	Put(wasm []byte) (digest journal.Digest, stored bool, err error)
}

// ControlOptions are what a Control answers from. Every field is needed.
type ControlOptions struct {
	Self    sharding.NodeID
	Version string
	// Name is the cluster's, as configured.
	Name     string
	Metadata *Metadata
	Blobs    Blobs
	// ReadOnly says that the disk is nearly full: modules are not taken then.
	ReadOnly func() bool
	// Prepare fetches and compiles a module.
	Prepare func(ctx context.Context, digest journal.Digest, holder sharding.NodeID) error
	// AwaitBindings waits until every binding up to the revision is served.
	AwaitBindings func(ctx context.Context, revision uint64) error
	// Snapshot takes a snapshot from another node.
	Snapshot func(ctx context.Context, from sharding.NodeID, header []byte, body io.Reader) error
}

// Control answers other nodes. Until it is open, which it is once the node's
// replica of the metadata shard runs, it answers nothing.
type Control struct {
	peer.NoControl
	opened atomic.Pointer[ControlOptions]
	member atomic.Pointer[Member]
	node   atomic.Pointer[peerv1.ProbeResponse]
	asking waiting
}

// Waiting are the nodes that asked this one for admission in the last seconds
// and are no members, by name: the metadata shard cannot admit them now.
func (c *Control) Waiting(view *meta.View) []meta.Member {
	return slices.DeleteFunc(c.asking.list(time.Now()), func(m meta.Member) bool {
		_, member := view.Member(m.Node)
		return member
	})
}

// Name says who answers before the node is open, and of which cluster it is, if
// of any: nobody founds another one because this node still starts.
func (c *Control) Name(node sharding.NodeID, incarnation uint64, cluster string) {
	c.node.Store(&peerv1.ProbeResponse{NodeId: string(node), Incarnation: incarnation, ClusterId: cluster})
}

// Open begins to answer.
func (c *Control) Open(opts ControlOptions) { c.opened.Store(&opts) }

// Serve lets the member take reports.
func (c *Control) Serve(m *Member) { c.member.Store(m) }

var errNotOpen = fmt.Errorf("%w: the node is starting", peer.ErrUnavailable)

func (c *Control) options() (*ControlOptions, error) {
	if o := c.opened.Load(); o != nil {
		return o, nil
	}
	return nil, errNotOpen
}

// Probe implements peer.Control.
func (c *Control) Probe(context.Context) (*peerv1.ProbeResponse, error) {
	r := &peerv1.ProbeResponse{}
	if n := c.node.Load(); n != nil {
		r.NodeId, r.Incarnation, r.ClusterId = n.GetNodeId(), n.GetIncarnation(), n.GetClusterId()
	}
	o := c.opened.Load()
	if o == nil {
		return r, nil
	}
	view := o.Metadata.View()
	cluster, created := view.Cluster()
	if !created {
		return r, nil
	}
	r.ClusterId, r.ShardCount, r.ClusterName, r.Version = cluster.ID, cluster.Shards, o.Name, o.Version
	if leader, known := o.Metadata.Leader(); known {
		r.Leader = string(leader)
		if m, ok := view.Member(leader); ok {
			r.LeaderAddress = m.Address
		}
	}
	for _, m := range view.Members() {
		r.Members = append(r.Members, memberToWire(m))
	}
	return r, nil
}

// Join implements peer.Control.
func (c *Control) Join(ctx context.Context, r *peerv1.JoinRequest) (*peerv1.JoinResponse, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	asks := memberFromWire(r.GetMember())
	c.asking.note(asks, time.Now())
	result, err := o.Metadata.DoHere(ctx, meta.Join(asks))
	if err != nil {
		return nil, err
	}
	res, err := meta.DecodeResult(result)
	switch {
	case errors.Is(err, meta.ErrInvalid):
		return nil, fmt.Errorf("%w: %w", peer.ErrRefused, err)
	case errors.Is(err, meta.ErrConflict): // until what stands in the way has gone
		return nil, fmt.Errorf("%w: %w", peer.ErrUnavailable, err)
	case err != nil:
		return nil, err
	case res.Joined == nil:
		return nil, fmt.Errorf("%w: the metadata shard did not say what to begin with", peer.ErrUnavailable)
	}
	c.asking.admitted(asks.Node)
	view := o.Metadata.View()
	cluster, _ := view.Cluster()
	out := &peerv1.JoinResponse{ClusterId: cluster.ID, ShardCount: cluster.Shards, Format: cluster.Format, MetaReplica: uint64(res.Joined.Replica)}
	for _, id := range res.Joined.First {
		out.MetaFirst = append(out.MetaFirst, uint64(id))
	}
	placement, _ := view.Placement(sharding.MetaShard)
	for _, at := range placement.Replicas {
		if m, ok := view.Member(at.Node); ok {
			out.MetaReplicas = append(out.MetaReplicas, &peerv1.ReplicaAddress{Replica: uint64(at.ID), NodeId: string(at.Node), Address: m.Address})
		}
	}
	return out, nil
}

// Propose implements peer.Control.
func (c *Control) Propose(ctx context.Context, command []byte) ([]byte, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	return o.Metadata.DoHere(ctx, command)
}

// ReadMeta implements peer.Control.
func (c *Control) ReadMeta(ctx context.Context) (uint64, error) {
	o, err := c.options()
	if err != nil {
		return 0, err
	}
	return o.Metadata.ReadHere(ctx)
}

// Report implements peer.Control.
func (c *Control) Report(_ context.Context, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	m := c.member.Load()
	if m == nil {
		return nil, errNotOpen
	}
	return m.coord.take(reportFromWire(r), r.GetSame(), r.GetPicture())
}

// HandOver implements peer.Control.
func (c *Control) HandOver(_ context.Context, transfers []*peerv1.Transfer) error {
	m := c.member.Load()
	if m == nil {
		return errNotOpen
	}
	m.handOver(transfers)
	return nil
}

// Prepare implements peer.Control.
func (c *Control) Prepare(ctx context.Context, module peer.Digest, holder sharding.NodeID) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	return o.Prepare(ctx, module, holder)
}

// AwaitBindings implements peer.Control.
func (c *Control) AwaitBindings(ctx context.Context, revision uint64) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	return o.AwaitBindings(ctx, revision)
}

// OpenBlob implements peer.Control.
func (c *Control) OpenBlob(_ context.Context, module peer.Digest) (io.ReadCloser, int64, error) {
	o, err := c.options()
	if err != nil {
		return nil, 0, err
	}
	wasm, err := o.Blobs.Get(module)
	if errors.Is(err, registry.ErrNotFound) {
		err = fmt.Errorf("%w: %w", peer.ErrNotFound, err)
	}
	return io.NopCloser(bytes.NewReader(wasm)), int64(len(wasm)), err
}

// PutBlob implements peer.Control.
func (c *Control) PutBlob(_ context.Context, _ peer.Digest, size int64, blob io.Reader) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if o.ReadOnly() {
		return fmt.Errorf("%w: the disk is nearly full", peer.ErrUnavailable)
	}
	wasm := make([]byte, 0, size+1) // one more, to read the end of it
	kept := bytes.NewBuffer(wasm)
	if _, err := kept.ReadFrom(blob); err != nil {
		return err
	}
	wasm = kept.Bytes()
	_, _, err = o.Blobs.Put(wasm)
	return err
}

// ReceiveSnapshot implements peer.Control.
func (c *Control) ReceiveSnapshot(ctx context.Context, from sharding.NodeID, header []byte, body io.Reader) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	return o.Snapshot(ctx, from, header, body)
}
