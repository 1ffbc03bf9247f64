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

// The beats of a member. All of it also happens at once when something
// changed.
const (
	passPeriod    = 250 * time.Millisecond
	reportPeriod  = 500 * time.Millisecond
	reportRest    = 20 * time.Millisecond // between two reports
	reportTimeout = time.Second
	catchUpWait   = 5 * time.Second
	// lostAfter is how long the metadata shard may have no leader that this
	// node knows of before it asks whether it still has a part in it.
	lostAfter = 5 * time.Second
	// excludedRest lies between two attempts to come back of a node that the
	// leader of the metadata shard takes for no member.
	excludedRest = 100 * time.Millisecond
	// removeTimeout bounds the wait for the old metadata replica to go.
	removeTimeout = 30 * time.Second
)

// Peers are the calls to other nodes that a member makes by itself.
type Peers interface {
	// Report tells the node that leads the metadata shard what this one
	// sees, and returns what that one asks for.
	Report(ctx context.Context, leader sharding.NodeID, r *peerv1.ReportRequest) (*peerv1.ReportResponse, error)
	// Sizes asks the node that leads the metadata shard how much every shard
	// holds.
	Sizes(ctx context.Context, leader sharding.NodeID) ([]*peerv1.ShardSize, error)
	// HandOver asks a node for leaderships.
	HandOver(ctx context.Context, node sharding.NodeID, transfers []*peerv1.Transfer) error
	// Incarnation is the present start of this node.
	Incarnation() uint64
}

// Options of a Member. Every field is needed.
type Options struct {
	Node     sharding.NodeID
	Disk     string
	Metadata *Metadata
	Raft     Raft
	Peers    Peers
	// Describe returns this node as a member: its address, roles and so on.
	Describe func() meta.Member
	// Able reports whether this node can lead what it holds: others should while
	// it cannot.
	Able func() bool
	// Full reports whether the disk has no room for more than it has.
	Full func() bool
	// Disputed reports whether the rows of a shard's replica here are disputed.
	Disputed func(sharding.ShardID) bool
	// Pace is what a step of this node's raft loop takes of late, Skew how far its
	// clock is ahead of the others'.
	Pace, Skew func() time.Duration
	// Heard reports whether this node hears another, or is it.
	Heard func(sharding.NodeID) bool
	// Admitted is closed when the node may vote: before that it does nothing.
	Admitted <-chan struct{}
	// Rejoin asks the cluster once to admit this node again.
	Rejoin func(context.Context) (*Joined, error)
	// HasLeft asks the other nodes, which this one may not hear of any more, whether
	// this node was ordered to leave and is no member. It is given whether this node
	// knows that it is leaving.
	HasLeft func(ctx context.Context, leaving bool) bool
	// Renewed makes it durable that the node's replica of the metadata shard is
	// another one.
	Renewed func(*Joined) error
	// Applied is how far this node has applied a shard.
	Applied func(sharding.ShardID) uint64
	// Size measures a shard on this node.
	Size Size
	// Collected is given the modules that the coordinator here has had removed,
	// since nothing needs them; it must not block.
	Collected func([]meta.Digest)
	// Told is given each new view of the cluster; it must not block.
	Told        func(*ClusterView)
	Coordinator coordinator.Options
	Logger      *slog.Logger
}

// Member keeps a node in step with its cluster.
type Member struct {
	opts  Options
	kick  chan struct{} // one slot: look at the replicas now
	told  chan struct{} // one slot: report now
	coord leading

	fresh       chan struct{} // closed when the metadata was caught up with
	caughtUp    sync.Once
	confirmed   map[sharding.ShardID]sharding.Term // elections won, of the following goroutine
	settled     bool                               // the last pass found nothing to do or to wait for; likewise
	passed      time.Time                          // likewise
	draining    atomic.Bool
	converged   atomic.Uint64 // metadata index of the last pass
	clusterView atomic.Pointer[ClusterView]
	sizes       atomic.Pointer[map[sharding.ShardID]*peerv1.ShardSize] // as last told; not modified
	outside     atomic.Bool                                            // the coordinator misses this node in the metadata shard
	left        atomic.Bool                                            // this node was asked to leave, and has left
	down        atomic.Bool                                            // an operator put this start down, and the cluster went on without it
	answered    atomic.Int64                                           // when the last report that was answered was sent, in Unix nanoseconds
	seq         uint64                                                 // of reports, as sent of the reporting goroutine
	sent        sent

	tasks   sync.WaitGroup
	stopped context.Context
	cancel  context.CancelFunc
}

// Start begins the member's work. The node's replica of the metadata shard
// exists and runs.
func Start(opts Options) *Member {
	ctx, cancel := context.WithCancel(context.Background())
	m := &Member{opts: opts, kick: make(chan struct{}, 1), told: make(chan struct{}, 1), fresh: make(chan struct{}), confirmed: map[sharding.ShardID]sharding.Term{}, stopped: ctx, cancel: cancel}
	m.clusterView.Store(&ClusterView{})
	m.sizes.Store(&map[sharding.ShardID]*peerv1.ShardSize{})
	m.coord.init(m)
	m.tasks.Go(func() { m.follow(ctx) })
	m.tasks.Go(func() { m.report(ctx) })
	m.tasks.Go(func() { m.coord.run(ctx) })
	return m
}

// Close ends the member's work and waits for it.
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

// WaitFresh waits until the metadata was caught up with since the start.
func (m *Member) WaitFresh(ctx context.Context) error {
	select {
	case <-m.fresh:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kick makes the member look and report at once: leadership moved.
func (m *Member) Kick() {
	wake(m.kick)
	wake(m.told)
}

func wake(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// AwaitTold waits until the view of the cluster here is one of after the call.
func (m *Member) AwaitTold(ctx context.Context) error {
	began := time.Now().UnixNano()
	every := time.NewTicker(2 * reportRest)
	defer every.Stop()
	for m.answered.Load() < began {
		wake(m.told)
		select {
		case <-every.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Drain makes this node hand all its leaderships over; it is about to stop.
func (m *Member) Drain() {
	m.draining.Store(true)
	wake(m.told)
}

// Left reports whether this node was asked to leave the cluster and is no
// member any more. It hears nothing of the cluster from then on.
func (m *Member) Left() bool { return m.left.Load() }

// Leaving reports whether this node was asked to leave the cluster. A node that
// has left is still leaving by the metadata here: it is not sent the entry that
// removes it.
func (m *Member) Leaving() bool {
	self, ok := m.opts.Metadata.View().Member(m.opts.Node)
	return ok && self.Status == meta.StatusLeaving
}

// PutDown reports whether an operator put this start of the node down: it takes
// part no more, a new start of it joins.
func (m *Member) PutDown() bool {
	return m.down.Load() || m.opts.Metadata.View().IsDowned(m.opts.Node, m.opts.Peers.Incarnation())
}

// ClusterView is the cluster as the coordinator last told it.
func (m *Member) ClusterView() *ClusterView { return m.clusterView.Load() }

// follow catches up with the metadata, announces this start, and then keeps
// the node's replicas in step.
func (m *Member) follow(ctx context.Context) {
	if !m.admitted(ctx) {
		return
	}
	every := time.NewTicker(passPeriod)
	defer every.Stop()
	current, announced, led := false, false, time.Now()
	for ctx.Err() == nil && !m.left.Load() && !m.down.Load() {
		if !current {
			// Also after the metadata replica was renewed: its log passes
			// through times in which other replicas were placed here.
			if current = m.catchUp(ctx); !current {
				m.rejoin(ctx)
				rest(ctx, excludedRest)
				continue
			}
			m.caughtUp.Do(func() { close(m.fresh) })
		}
		changed := m.opts.Metadata.Changed()
		if !announced || !m.announced() {
			announced = m.announce(ctx)
		}
		outside := m.outside.Swap(false)
		// A leader that does not hear of this start may be one that the node's
		// replica knows from before it was taken out.
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
				waiting = m.settled && now.Sub(m.passed) < idlePeriod
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

// admitted waits until the node may vote; false when ctx ends before.
func (m *Member) admitted(ctx context.Context) bool {
	select {
	case <-m.opts.Admitted:
		return true
	case <-ctx.Done():
		return false
	}
}

// pass looks at all replicas once.
func (m *Member) pass(ctx context.Context) {
	m.settled, m.passed = false, time.Now()
	statuses, err := m.opts.Raft.Statuses()
	if err != nil || !m.confirm(ctx, statuses) || m.opts.Metadata.Stopped() != nil {
		return
	}
	// In this order: the view has at least what is applied.
	applied := m.opts.Metadata.AppliedIndex()
	view := m.opts.Metadata.View()
	m.settled = m.reconcile(view, statuses)
	m.converged.Store(applied)
}

// confirm catches up with the metadata once after each election that this node
// won, before it changes the group's members by it.
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

// rejoin asks to be admitted again: a node that was taken for dead has no part
// in the metadata shard any more, and nobody there speaks to its old replica.
// With a fresh replica it hears what became of the others. Before that it looks
// whether it has left: it may have been removed without hearing that it was asked
// to leave. It reports whether the node has another
// replica now.
func (m *Member) rejoin(ctx context.Context) (renewed bool) {
	leaving := m.Leaving()
	if m.opts.HasLeft(ctx, leaving) {
		m.left.Store(true)
		m.opts.Logger.Info("this node has left the cluster; stop it")
	}
	if leaving || m.left.Load() {
		return false
	}
	joined, err := m.opts.Rejoin(ctx)
	if errors.Is(err, peer.ErrPutDown) {
		m.down.Store(true)
		m.opts.Logger.Error("an operator put this node down, and the cluster goes on without it: start it anew to let it join", "error", err)
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
				return false // it has its part, and only the leader is away
			}
			old = append(old, raftgroup.ReplicaRef{Shard: st.Shard, Replica: st.Replica})
		}
	}
	m.opts.Logger.Info("the cluster went on without this node and takes it back")
	if err := m.renew(old, joined); err != nil {
		m.opts.Logger.Error("the metadata replica is not renewed", "error", err)
	}
	return true
}

func (m *Member) renew(old []raftgroup.ReplicaRef, joined *Joined) error {
	if err := m.opts.Renewed(joined); err != nil {
		return err
	}
	if err := m.opts.Raft.RemoveGroups(old); err != nil {
		return err
	}
	// What the old replica applied must not be taken for the new one's.
	wait, cancel := context.WithTimeout(m.stopped, removeTimeout)
	defer cancel()
	gone := time.NewTicker(time.Millisecond)
	defer gone.Stop()
	for m.opts.Applied(sharding.MetaShard) != 0 {
		select {
		case <-gone.C:
		case <-wait.Done():
			return fmt.Errorf("remove the old metadata replica: %w", wait.Err())
		}
	}
	m.opts.Metadata.Renewed()
	return m.opts.Raft.CreateGroups([]raftgroup.GroupConfig{{Shard: sharding.MetaShard, Replica: joined.Replica, Voters: joined.First}})
}

// announced says whether the metadata has this start, with all of it that the
// level keeps; of a node that is no member it says so too.
func (m *Member) announced() bool {
	self, view := m.opts.Describe(), m.opts.Metadata.View()
	known, ok := view.Member(self.Node)
	return !ok || known.PeerAddress == self.PeerAddress || view.ClusterVersion() < sharding.VersionPeerAddress
}

// announce makes this start known: its incarnation, its addresses. A node that
// was down is up again by it.
func (m *Member) announce(ctx context.Context) bool {
	self := m.opts.Describe()
	if known, ok := m.opts.Metadata.View().Member(self.Node); ok && m.announced() && known.Incarnation == self.Incarnation && known.Address == self.Address && known.Disk == self.Disk {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	_, err := m.opts.Metadata.Do(ctx, m.opts.Metadata.View().Join(self))
	if err != nil && ctx.Err() == nil {
		m.opts.Logger.Warn("the cluster did not take this start of the node", "error", err)
	}
	return err == nil
}
