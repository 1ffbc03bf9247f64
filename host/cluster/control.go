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
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// blobs stores the modules' bytes on this node.
type blobs interface {
	Get(digest journal.Digest) ([]byte, error)
	// Put stores a module. It fails with peer.ErrUnavailable if there is no room.
	Put(ctx context.Context, wasm []byte) error
}

// disk is the disk of the node's data directory.
type disk interface {
	// ReadOnly reports whether the disk is nearly full, so that modules are
	// rejected.
	ReadOnly() bool
}

// preparer brings modules to this node.
type preparer interface {
	// Prepare fetches a module from holder and compiles it.
	Prepare(ctx context.Context, digest journal.Digest, holder sharding.NodeID) error
}

// activations are the modules that serve entity types.
type activations interface {
	// Await waits until all activations up to the revision are served.
	Await(ctx context.Context, revision uint64) error
	// Counts returns, for entity types that two modules serve, the counters
	// of each of the two modules.
	Counts(entityTypes []string) ([]*peerv1.TypeCounts, error)
}

// snapshotReceiver is the raft loop, which receives snapshots from other nodes.
type snapshotReceiver interface {
	ReceiveSnapshot(ctx context.Context, from sharding.NodeID, header []byte, body io.Reader) (answer []byte, err error)
}

// addressProber asks which node listens at an address.
type addressProber interface {
	prober
	// ProbeAlone is Probe for an address that serves only nodes.
	ProbeAlone(ctx context.Context, address string) (*peerv1.ProbeResponse, error)
}

// ControlOptions are the dependencies of a Control. All fields are required.
type ControlOptions struct {
	Self    sharding.NodeID
	Version string
	// Name is the configured name of the cluster.
	Name     string
	Metadata *Metadata
	Starts   Starts
	// Recovered is closed when the metadata contains everything that this node
	// knew to be committed when it started.
	Recovered <-chan struct{}
	Blobs     blobs
	Disk      disk
	Identity  *datadir.Record
	// Distribution brings modules to this node, and Activations serves them.
	Distribution preparer
	Activations  activations
	Member       describer
	Snapshots    snapshotReceiver
	Consistency  *ConsistencyChecker
	Peers        addressProber
}

// addresses are the addresses of this node, as host:port.
type addresses interface {
	// ClientAddress returns where clients reach this node.
	ClientAddress() string
	// PeerAddress returns where other nodes reach this node.
	PeerAddress() string
}

// Control answers the calls of other nodes. It is opened when the node's
// replica of the metadata shard runs. Before that, it answers only Probe and
// the bootstrap calls.
type Control struct {
	peer.NoControl
	// Addresses are reported to nodes that probe this one. If Addresses is
	// nil, no address is reported.
	Addresses addresses

	opened    atomic.Pointer[ControlOptions]
	member    atomic.Pointer[Member]
	bootstrap atomic.Pointer[Bootstrap]
	node      atomic.Pointer[peerv1.ProbeResponse]
	asking    applicants
	blobs     arriving
}

// Applicants returns, by name, the nodes that are not members and that asked
// this one for admission in the last seconds. They wait because the metadata
// shard cannot admit them now.
func (c *Control) Applicants(view *meta.View) []meta.Member {
	return slices.DeleteFunc(c.asking.list(time.Now()), func(m meta.Member) bool {
		_, member := view.Member(m.Node)
		return member
	})
}

// Name sets the identity that Probe returns before the Control is open, and the
// cluster that the node belongs to, if any. Probes must name the cluster
// already while this node is starting, so that other nodes do not bootstrap
// a second cluster.
func (c *Control) Name(node sharding.NodeID, incarnation uint64, cluster string) {
	c.node.Store(&peerv1.ProbeResponse{NodeId: string(node), Incarnation: incarnation, ClusterId: cluster})
}

// Cluster returns the cluster that the node belongs to or is about to rejoin,
// or "".
func (c *Control) Cluster() string { return c.node.Load().GetClusterId() }

// Open makes the Control answer.
func (c *Control) Open(opts ControlOptions) { c.opened.Store(&opts) }

// Serve sets the member that accepts reports.
func (c *Control) Serve(m *Member) { c.member.Store(m) }

var errNotOpen = fmt.Errorf("%w: the node is starting", peer.ErrUnavailable)

func (c *Control) options() (*ControlOptions, error) {
	if o := c.opened.Load(); o != nil {
		return o, nil
	}
	return nil, errNotOpen
}

// probeConfirmTime bounds the read that confirms a leadership in the answer to a
// probe. A probe waits for at most a second.
const probeConfirmTime = 500 * time.Millisecond

// Probe implements peer.Control. To a node that is not a member, this node names
// itself as leader only if a read confirms that: such a node takes its absence
// from the leader's members as proof that it was removed.
func (c *Control) Probe(ctx context.Context) (*peerv1.ProbeResponse, error) {
	r := &peerv1.ProbeResponse{}
	if n := c.node.Load(); n != nil {
		r.NodeId, r.Incarnation, r.ClusterId = n.GetNodeId(), n.GetIncarnation(), n.GetClusterId()
	}
	if c.Addresses != nil {
		r.Address, r.PeerAddress = c.Addresses.ClientAddress(), c.Addresses.PeerAddress()
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
	leader, known := o.Metadata.Leader()
	if _, member := view.Member(peer.CallerOf(ctx).Node); known && !member && string(leader) == r.NodeId {
		confirming, cancel := context.WithTimeout(ctx, probeConfirmTime)
		known = o.Metadata.Confirm(confirming) == nil
		cancel()
		view = o.Metadata.View()
	}
	if known {
		r.Leader = string(leader)
		if m, ok := view.Member(leader); ok {
			r.LeaderAddress = m.PeerEndpoint()
		}
	}
	for _, m := range view.Members() {
		r.Members = append(r.Members, memberToWire(m))
	}
	for _, d := range view.DownedStarts() {
		r.Downed = append(r.Downed, &peerv1.DownedStart{NodeId: string(d.Node), Incarnation: d.Incarnation})
	}
	for _, l := range view.LeftNodes() {
		r.Left = append(r.Left, &peerv1.LeftNode{NodeId: string(l.Node), Incarnation: l.Incarnation, DiskId: l.Disk})
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
	if o.Metadata.View().ClusterVersion() < sharding.VersionPeerAddress {
		asks.PeerAddress = "" // nodes and clients use the same address
	}
	c.asking.note(asks, time.Now())
	if err := o.verifyApplicant(ctx, asks); err != nil {
		return nil, err
	}
	result, err := o.Metadata.doHere(ctx, o.Metadata.View().Join(asks))
	if err != nil {
		return nil, err
	}
	res, err := meta.DecodeResult(result)
	switch {
	case errors.Is(err, meta.ErrInvalid), errors.Is(err, meta.ErrClusterVersion) && !asks.Speaks.Contains(o.Metadata.View().ClusterVersion()):
		return nil, fmt.Errorf("%w: %w", peer.ErrRefused, err)
	case errors.Is(err, meta.ErrNodeDowned):
		c.asking.remove(asks.Node)
		return nil, fmt.Errorf("%w: %w", peer.ErrPutDown, err)
	case errors.Is(err, meta.ErrLeft):
		c.asking.remove(asks.Node)
		return nil, fmt.Errorf("%w: %w", peer.ErrRefused, err)
	case errors.Is(err, meta.ErrConflict), errors.Is(err, meta.ErrClusterVersion): // retry until the obstacle is gone
		return nil, fmt.Errorf("%w: %w", peer.ErrUnavailable, err)
	case err != nil:
		return nil, err
	case res.Joined == nil:
		return nil, fmt.Errorf("%w: the metadata shard returned no initial state", peer.ErrUnavailable)
	}
	c.asking.remove(asks.Node)
	view := o.Metadata.View()
	cluster, _ := view.Cluster()
	out := &peerv1.JoinResponse{ClusterId: cluster.ID, ShardCount: cluster.Shards, Format: cluster.Format, MetaReplica: uint64(res.Joined.Replica), Level: uint32(view.ClusterVersion())}
	for _, id := range res.Joined.First {
		out.MetaFirst = append(out.MetaFirst, uint64(id))
	}
	placement, _ := view.Placement(sharding.MetaShard)
	for _, at := range placement.Replicas {
		if m, ok := view.Member(at.Node); ok {
			out.MetaReplicas = append(out.MetaReplicas, &peerv1.ReplicaAddress{Replica: uint64(at.ID), NodeId: string(at.Node), Address: m.PeerEndpoint()})
		}
	}
	return out, nil
}

// PrepareClusterVersion implements peer.Control.
func (c *Control) PrepareClusterVersion(_ context.Context, version sharding.ClusterVersion) (*peerv1.PrepareLevelResponse, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	if version != 0 && !sharding.SupportedVersions.Contains(version) {
		return nil, fmt.Errorf("%w: node %s supports %v, not version %d", peer.ErrRefused, o.Self, sharding.SupportedVersions, version)
	}
	if err := o.Identity.SaveLevel(version); err != nil {
		return nil, err
	}
	self := o.Member.Describe()
	return &peerv1.PrepareLevelResponse{
		MinLevel: uint32(sharding.SupportedVersions.Min), MaxLevel: uint32(sharding.SupportedVersions.Max), Incarnation: self.Incarnation, Version: o.Version,
		PeerAddress: self.PeerAddress,
	}, nil
}

// Propose implements peer.Control.
func (c *Control) Propose(ctx context.Context, command []byte) ([]byte, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	if m, ok := meta.AdmittedMember(command); ok {
		if err := o.verifyApplicant(ctx, m); err != nil {
			return nil, err
		}
	}
	result, err := o.Metadata.doHere(ctx, command)
	if errors.Is(err, meta.ErrInvalid) {
		err = fmt.Errorf("%w: %w", peer.ErrRefused, err)
	}
	return result, err
}

// ReadMeta implements peer.Control.
func (c *Control) ReadMeta(ctx context.Context) (uint64, error) {
	o, err := c.options()
	if err != nil {
		return 0, err
	}
	return o.Metadata.readHere(ctx)
}

// Report implements peer.Control.
func (c *Control) Report(_ context.Context, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error) {
	m := c.member.Load()
	if m == nil {
		return nil, errNotOpen
	}
	return m.coord.take(reportFromWire(r), r.GetSame(), r.GetPicture(), r.GetPictureChanges())
}

// Renew implements peer.Control. It refuses a node that was ordered to leave
// and has left, because the node would join again with its empty disk.
func (c *Control) Renew(ctx context.Context, node sharding.NodeID) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if err := o.checkDeparted(node); err != nil {
		return err
	}
	m := c.member.Load()
	if m == nil {
		return errNotOpen
	}
	if _, err = m.Operate(ctx, coordinator.Operation{Kind: coordinator.OperationRenew, Node: node}); err == nil {
		err = o.checkDeparted(node) // the node may have left during the operation
	}
	if errors.Is(err, coordinator.ErrRefused) { // a temporary refusal
		return fmt.Errorf("%w: %w", peer.ErrUnavailable, err)
	}
	return err
}

// Sizes implements peer.Control.
func (c *Control) Sizes(context.Context) ([]*peerv1.ShardSize, error) {
	m := c.member.Load()
	if m == nil {
		return nil, errNotOpen
	}
	return m.coord.sizes()
}

// CompareRows implements peer.Control.
func (c *Control) CompareRows(_ context.Context, shard sharding.ShardID, theirs journal.Proof) (own journal.RowsDigest, ok bool, err error) {
	o := c.opened.Load()
	if o == nil {
		return own, false, errNotOpen
	}
	own, ok = o.Consistency.Compare(shard, theirs)
	return own, ok, nil
}

// TransferLeaders implements peer.Control.
func (c *Control) TransferLeaders(ctx context.Context, transfers []*peerv1.Transfer) error {
	m := c.member.Load()
	if m == nil {
		return errNotOpen
	}
	if leader, known := m.opts.Metadata.Leader(); !known || leader != peer.CallerOf(ctx).Node {
		// If this node does not know the coordinator yet, it receives the
		// requests in the answer to its next report.
		return fmt.Errorf("%w: node %s is not the coordinator known to this node", peer.ErrUnavailable, peer.CallerOf(ctx).Node)
	}
	m.transferLeaders(transfers)
	return nil
}

// Prepare implements peer.Control.
func (c *Control) Prepare(ctx context.Context, module peer.Digest, holder sharding.NodeID) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	return o.Distribution.Prepare(ctx, module, holder)
}

// AwaitActivations implements peer.Control.
func (c *Control) AwaitActivations(ctx context.Context, revision uint64) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	return o.Activations.Await(ctx, revision)
}

// Counts implements peer.Control.
func (c *Control) Counts(_ context.Context, entityTypes []string) ([]*peerv1.TypeCounts, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	return o.Activations.Counts(entityTypes)
}

// OpenBlob implements peer.Control.
func (c *Control) OpenBlob(_ context.Context, module peer.Digest) (io.ReadCloser, int64, error) {
	o, err := c.options()
	if err != nil {
		return nil, 0, err
	}
	wasm, err := o.Blobs.Get(module)
	if errors.Is(err, guest.ErrModuleNotFound) {
		err = fmt.Errorf("%w: %w", peer.ErrNotFound, err)
	}
	return io.NopCloser(bytes.NewReader(wasm)), int64(len(wasm)), err
}

// PutBlob implements peer.Control.
func (c *Control) PutBlob(ctx context.Context, _ peer.Digest, _ int64, blob io.Reader) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if o.Disk.ReadOnly() {
		return fmt.Errorf("%w: the disk is nearly full", peer.ErrUnavailable)
	}
	wasm, done, err := c.blobs.read(blob)
	defer done()
	if err != nil {
		return err
	}
	return o.Blobs.Put(ctx, wasm)
}

// ReceiveSnapshot implements peer.Control.
func (c *Control) ReceiveSnapshot(ctx context.Context, from sharding.NodeID, header []byte, body io.Reader) ([]byte, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	return o.Snapshots.ReceiveSnapshot(ctx, from, header, body)
}

// checkDeparted rejects a node that was ordered to leave and has left.
func (o *ControlOptions) checkDeparted(node sharding.NodeID) error {
	if slices.ContainsFunc(o.Metadata.View().LeftNodes(), func(l meta.LeftNode) bool { return l.Node == node && l.Disk != "" }) {
		return fmt.Errorf("%w: node %s has left the cluster", peer.ErrRefused, node)
	}
	return nil
}
