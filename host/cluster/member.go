package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// Periods and timeouts of a member. All periodic work also happens at once when
// something changes.
const (
	passPeriod    = 250 * time.Millisecond
	reportPeriod  = 500 * time.Millisecond
	reportRest    = 20 * time.Millisecond // minimum time between two reports
	reportTimeout = time.Second
	catchUpWait   = 5 * time.Second
	// lostAfter is how long this node may know no leader of the metadata shard
	// before it asks whether it is still a member of that shard's group.
	lostAfter = 5 * time.Second
	// excludedRest is the pause between two rejoin attempts of a node that the
	// leader of the metadata shard does not regard as a member.
	excludedRest = 100 * time.Millisecond
	// removeTimeout bounds the wait until the old metadata replica is removed.
	removeTimeout = 30 * time.Second
)

// peers makes the calls to other nodes that a member initiates.
type peers interface {
	// Report sends this node's report to the node that leads the metadata shard
	// and returns that node's requests.
	Report(ctx context.Context, leader sharding.NodeID, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error)
	// Sizes asks the node that leads the metadata shard for the sizes of all
	// shards.
	Sizes(ctx context.Context, leader sharding.NodeID) ([]*peerv1.ShardSize, error)
	// TransferLeaders asks a node to transfer leaderships.
	TransferLeaders(ctx context.Context, node sharding.NodeID, transfers []*peerv1.Transfer) error
	// Incarnation identifies this process among all that have run as this
	// node.
	Incarnation() uint64
	// IsAlive reports whether another node is not suspected.
	IsAlive(sharding.NodeID) bool
}

// self is this node as a member of its cluster.
type self interface {
	describer
	// Rejoin asks the cluster once to admit this node again.
	Rejoin(context.Context) (*Joined, error)
	// HasLeft asks the other nodes whether this node was ordered to leave and
	// is no longer a member. The node may not learn of its removal itself,
	// because it may have no contact with the cluster. leaving reports
	// whether this node knows that it is leaving.
	HasLeft(ctx context.Context, leaving bool) bool
	// Renewed makes durable that the node has a new replica of the metadata
	// shard.
	Renewed(*Joined) error
}

// condition is how well this node can serve its shards.
type condition interface {
	// Able reports whether this node can lead its shards. If it cannot, the
	// coordinator moves the leaderships to other nodes.
	Able() bool
	// Full reports whether the disk has no room for more data.
	Full() bool
	// Disputed reports whether the checksum of this node's replica of a shard
	// is disputed.
	Disputed(sharding.ShardID) bool
	// Pace is the recent duration of a step of this node's raft loop.
	Pace() time.Duration
	// Skew is how far this node's clock is ahead of the other nodes' clocks.
	Skew() time.Duration
}

// machine is the state machine of this node's replicas.
type machine interface {
	// Applied returns the applied index of a shard, and the term of that entry.
	Applied(sharding.ShardID) (index uint64, term sharding.Term)
	// Entities returns the number of entities of a shard, and Bytes about how
	// many bytes they use.
	Entities(sharding.ShardID) uint64
	Bytes(sharding.ShardID) uint64
}

// observer receives what the coordinator does and knows. Its methods must not
// block.
type observer interface {
	// OnCollected receives the modules that this node's coordinator has removed
	// because nothing needs them.
	OnCollected([]meta.Digest)
	// OnClusterView receives each new view of the cluster.
	OnClusterView(*ClusterView)
}

// Options configures a Member. All fields are required.
type Options struct {
	Node     sharding.NodeID
	Disk     string
	Metadata *Metadata
	Raft     raft
	Peers    peers
	Self     self
	// Admitted is closed when the node may vote. The member does nothing
	// before.
	Admitted    <-chan struct{}
	Condition   condition
	Machine     machine
	Observer    observer
	Coordinator coordinator.Options
	Logger      *slog.Logger
}

// Member keeps a node consistent with its cluster: it announces the node,
// reports to the coordinator, creates and removes replicas according to the
// placement, and runs the coordinator while this node leads the metadata shard.
type Member struct {
	opts      Options
	kick      chan struct{} // one slot: reconcile the replicas now
	reportNow chan struct{} // one slot: report now
	coord     leading

	fresh       chan struct{} // closed when this node has caught up with the metadata
	caughtUp    sync.Once
	confirmed   map[sharding.ShardID]sharding.Term // term of each shard's election that was confirmed; owned by follow
	isSettled   bool                               // the last pass had nothing to do or to wait for; owned by follow
	lastPass    time.Time                          // time of the last pass; owned by follow
	draining    atomic.Bool
	converged   atomic.Uint64 // applied metadata index of the last pass
	clusterView atomic.Pointer[ClusterView]
	sizes       atomic.Pointer[map[sharding.ShardID]*peerv1.ShardSize] // the last sizes received; not modified
	outside     atomic.Bool                                            // the coordinator says that the metadata shard's group lacks this node
	left        atomic.Bool                                            // this node was asked to leave and has left
	down        atomic.Bool                                            // an operator put this incarnation of the node down, and the cluster continued without it
	answered    atomic.Int64                                           // when the last answered report was sent, in Unix nanoseconds
	seq         uint64                                                 // sequence number of the last report; owned by report
	sent        sent

	tasks   sync.WaitGroup
	stopped context.Context
	cancel  context.CancelFunc
}

// Start starts the member's goroutines. The node's replica of the metadata
// shard must exist and run.
func Start(opts Options) *Member {
	ctx, cancel := context.WithCancel(context.Background())
	m := &Member{opts: opts, kick: make(chan struct{}, 1), reportNow: make(chan struct{}, 1), fresh: make(chan struct{}), confirmed: map[sharding.ShardID]sharding.Term{}, stopped: ctx, cancel: cancel}
	m.clusterView.Store(&ClusterView{})
	m.sizes.Store(&map[sharding.ShardID]*peerv1.ShardSize{})
	m.coord.init(m)
	m.tasks.Go(func() { m.follow(ctx) })
	m.tasks.Go(func() { m.report(ctx) })
	m.tasks.Go(func() { m.coord.run(ctx) })
	return m
}

// Close stops the member's goroutines and waits for them until ctx ends.
func (m *Member) Close(ctx context.Context) error {
	m.cancel()
	done := make(chan struct{})
	go func() {
		m.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WaitFresh waits until the node has caught up with the metadata for the first
// time since it started.
func (m *Member) WaitFresh(ctx context.Context) error {
	select {
	case <-m.fresh:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kick makes the member reconcile and report at once. Call it when a leadership
// has moved.
func (m *Member) Kick() {
	wake(m.kick)
	wake(m.reportNow)
}

func wake(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// AwaitClusterView waits until the cluster view here is newer than the call.
func (m *Member) AwaitClusterView(ctx context.Context) error {
	began := time.Now().UnixNano()
	every := time.NewTicker(2 * reportRest)
	defer every.Stop()
	for m.answered.Load() < began {
		wake(m.reportNow)
		select {
		case <-every.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Drain makes this node transfer all its leaderships because it is about to
// stop.
func (m *Member) Drain() {
	m.draining.Store(true)
	wake(m.reportNow)
}

// HasLeft reports whether this node was asked to leave the cluster and is no
// longer a member. From then on it hears nothing from the cluster.
func (m *Member) HasLeft() bool { return m.left.Load() }

// IsLeaving reports whether this node was asked to leave the cluster. A node that
// has left is still leaving according to its own metadata, because it does not
// receive the entry that removes it.
func (m *Member) IsLeaving() bool {
	self, ok := m.opts.Metadata.View().Member(m.opts.Node)
	return ok && self.Status == meta.StatusLeaving
}

// IsPutDown reports whether an operator put this incarnation of the node
// down. This process never takes part again; after a restart, the node joins
// again.
func (m *Member) IsPutDown() bool {
	return m.down.Load() || m.opts.Metadata.View().IsDowned(m.opts.Node, m.opts.Peers.Incarnation())
}

// ClusterView returns the coordinator's last view of the cluster.
func (m *Member) ClusterView() *ClusterView { return m.clusterView.Load() }

// follow catches up with the metadata, announces this incarnation, and then
// reconciles the node's replicas whenever something changes.
func (m *Member) follow(ctx context.Context) {
	if !m.awaitAdmission(ctx) {
		return
	}
	every := time.NewTicker(passPeriod)
	defer every.Stop()
	current, announced, led := false, false, time.Now()
	for ctx.Err() == nil && !m.left.Load() && !m.down.Load() {
		if !current {
			// Catch up also after the metadata replica was renewed, because it
			// replays a log that contains old placements of replicas on this
			// node.
			if current = m.catchUp(ctx); !current {
				m.rejoin(ctx)
				rest(ctx, excludedRest)
				continue
			}
			m.caughtUp.Do(func() { close(m.fresh) })
		}
		changed := m.opts.Metadata.Changed()
		if !announced || !m.isAnnounced() {
			announced = m.announce(ctx)
		}
		outside := m.outside.Swap(false)
		// If the leader does not receive this node's reports, it may be an old
		// leader that the node's replica remembers from before the node was
		// removed.
		if _, known := m.opts.Metadata.Leader(); known && announced && !outside {
			led = time.Now()
		} else if outside || time.Since(led) > lostAfter {
			led = time.Now()
			if m.rejoin(ctx) {
				current = false
				continue
			}
		}
		m.pass(ctx)
		for waiting := true; waiting; {
			select {
			case <-changed:
				waiting = false
			case <-m.kick:
				waiting = false
			case now := <-every.C:
				waiting = m.isSettled && now.Sub(m.lastPass) < idlePeriod
			case <-ctx.Done():
				waiting = false
			}
		}
	}
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// awaitAdmission waits until the node may vote. It returns false if ctx ends first.
func (m *Member) awaitAdmission(ctx context.Context) bool {
	select {
	case <-m.opts.Admitted:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass reconciles all replicas once.
func (m *Member) pass(ctx context.Context) {
	m.isSettled, m.lastPass = false, time.Now()
	statuses, err := m.opts.Raft.Statuses()
	if err != nil || !m.confirm(ctx, statuses) || m.opts.Metadata.stopError() != nil {
		return
	}
	// Read the index first, so that the view is at least as new as the index.
	applied := m.opts.Metadata.AppliedIndex()
	view := m.opts.Metadata.View()
	m.isSettled = m.reconcile(view, statuses)
	m.converged.Store(applied)
}

// confirm catches up with the metadata once after each election that this node
// won. Only then may it change the membership of the group, because its view
// could be older than a change that the previous leader made.
func (m *Member) confirm(ctx context.Context, statuses []raftgroup.Status) bool {
	var won []*raftgroup.Status
	for i := range statuses {
		if st := &statuses[i]; st.Self && m.confirmed[st.Shard] != st.Term {
			won = append(won, st)
		}
	}
	if len(won) == 0 {
		return true
	}
	if !m.catchUp(ctx) {
		return false
	}
	for _, st := range won {
		m.confirmed[st.Shard] = st.Term
	}
	return true
}

func (m *Member) catchUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	err := m.opts.Metadata.CatchUp(ctx)
	var elsewhere *sharding.NotLeaderError
	if err != nil && !errors.As(err, &elsewhere) && !errors.Is(err, context.Canceled) {
		m.opts.Logger.Warn("waiting for the metadata shard", "error", err)
	}
	return err == nil
}

// rejoin asks the cluster to admit this node again. If the node was removed as
// dead, nobody in the metadata shard talks to its old replica any more, and
// the node learns what happened only with a new replica. First rejoin checks
// whether the node has left, because it may have been removed without
// learning that it was asked to leave. It returns whether the metadata
// replica was replaced.
func (m *Member) rejoin(ctx context.Context) (renewed bool) {
	leaving := m.IsLeaving()
	if m.opts.Self.HasLeft(ctx, leaving) {
		m.left.Store(true)
		m.opts.Logger.Info("this node has left the cluster; stop it")
	}
	if leaving || m.left.Load() {
		return false
	}
	joined, err := m.opts.Self.Rejoin(ctx)
	if errors.Is(err, peer.ErrPutDown) {
		m.down.Store(true)
		m.opts.Logger.Error("an operator declared this node down: restart it to let it join again", "error", err)
		return false
	}
	if err != nil {
		m.opts.Logger.Debug("the cluster does not answer", "error", err)
		return false
	}
	statuses, err := m.opts.Raft.Statuses()
	if err != nil {
		return false
	}
	var old []raftgroup.ReplicaRef
	for i := range statuses {
		if st := &statuses[i]; st.Shard == sharding.MetaShard {
			if st.Replica == joined.Replica {
				return false // this node is still a member, and only the leader is missing
			}
			old = append(old, raftgroup.ReplicaRef{Shard: st.Shard, Replica: st.Replica})
		}
	}
	m.opts.Logger.Info("the cluster had removed this node and readmits it")
	if err := m.renew(old, joined); err != nil {
		m.opts.Logger.Error("cannot replace the metadata replica", "error", err)
	}
	return true
}

func (m *Member) renew(old []raftgroup.ReplicaRef, joined *Joined) error {
	if err := m.opts.Self.Renewed(joined); err != nil {
		return err
	}
	if err := m.opts.Raft.RemoveGroups(old); err != nil {
		return err
	}
	// The applied index of the old replica must not be taken for the applied
	// index of the new replica.
	wait, cancel := context.WithTimeout(m.stopped, removeTimeout)
	defer cancel()
	gone := time.NewTicker(time.Millisecond)
	defer gone.Stop()
	for m.applied(sharding.MetaShard) != 0 {
		select {
		case <-gone.C:
		case <-wait.Done():
			return fmt.Errorf("remove the old metadata replica: %w", wait.Err())
		}
	}
	m.opts.Metadata.Reset()
	return m.opts.Raft.CreateGroups([]raftgroup.GroupConfig{{Shard: sharding.MetaShard, Replica: joined.Replica, Voters: joined.FirstVoters}})
}

// isAnnounced reports whether the metadata contains this node's addresses as far
// as the cluster version supports them. It also returns true if this node is
// not a member.
func (m *Member) isAnnounced() bool {
	self, view := m.opts.Self.Describe(), m.opts.Metadata.View()
	known, ok := view.Member(self.Node)
	return !ok || known.PeerAddress == self.PeerAddress || view.ClusterVersion() < sharding.VersionPeerAddress
}

// announce makes this node's incarnation and addresses known to the cluster.
// A node that was down is up again afterwards.
func (m *Member) announce(ctx context.Context) bool {
	self := m.opts.Self.Describe()
	if known, ok := m.opts.Metadata.View().Member(self.Node); ok && m.isAnnounced() && known.Incarnation == self.Incarnation && known.Address == self.Address && known.Disk == self.Disk {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	_, err := m.opts.Metadata.Do(ctx, m.opts.Metadata.View().Join(self))
	if err != nil && ctx.Err() == nil {
		m.opts.Logger.Warn("the cluster rejected this start of the node", "error", err)
	}
	return err == nil
}

// applied returns this node's applied index of a shard.
func (m *Member) applied(shard sharding.ShardID) uint64 {
	index, _ := m.opts.Machine.Applied(shard)
	return index
}

// isAlive reports whether a node is this node, or is not suspected.
func (m *Member) isAlive(node sharding.NodeID) bool {
	return node == m.opts.Node || m.opts.Peers.IsAlive(node)
}
