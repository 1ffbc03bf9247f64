package cluster

import (
	"context"
	"sync"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	stepPeriod = 250 * time.Millisecond
	// stepWait is how long the answer to a report waits for the step that
	// takes it in, so that it carries what that step wants.
	stepWait = 100 * time.Millisecond
	// proposeTimeout bounds the wait for one command of a plan.
	proposeTimeout = 5 * time.Second
	// keepReports is how long a node that does not report stays in the picture.
	keepReports = 5 * time.Second
)

// leading runs the coordinator while this node leads the metadata shard.
type leading struct {
	m     *Member
	wake  chan struct{} // one slot
	mu    sync.Mutex
	term  sharding.Term // that the coordinator is of
	coord *coordinator.Coordinator

	inbox     map[sharding.NodeID]observed // since the last step
	latest    map[sharding.NodeID]arrival
	orders    []coordinator.Order                    // since the last step
	number    uint64                                 // of the last order
	transfers map[sharding.NodeID][]*peerv1.Transfer // for their next report
	progress  []coordinator.Progress
	stepped   chan struct{} // closed and made anew after each step
}

// arrival is the last report of a node.
type arrival struct {
	observed
	at time.Time
}

func (l *leading) init(m *Member) {
	l.m, l.wake, l.stepped = m, make(chan struct{}, 1), make(chan struct{})
	l.forget()
}

// forget begins anew, as a coordinator that knows nothing.
func (l *leading) forget() {
	l.inbox, l.latest = map[sharding.NodeID]observed{}, map[sharding.NodeID]arrival{}
	l.transfers, l.orders, l.progress = map[sharding.NodeID][]*peerv1.Transfer{}, nil, nil
	l.coord = coordinator.New(l.m.opts.Coordinator)
}

// leads is called with the lock held. A new leadership begins anew.
func (l *leading) leads() bool {
	term, leads := l.m.opts.Metadata.Leads()
	if leads && term != l.term {
		l.term = term
		l.forget()
	}
	return leads
}

// take takes a report and returns what its node is asked for.
func (l *leading) take(o observed) (*peerv1.ReportResponse, error) {
	l.mu.Lock()
	if !l.leads() {
		l.mu.Unlock()
		return nil, l.m.opts.Metadata.notLeader()
	}
	l.inbox[o.Node] = o
	l.latest[o.Node] = arrival{o, time.Now()}
	stepped := l.stepped
	l.mu.Unlock()
	wake(l.wake)
	wait := time.NewTimer(stepWait)
	defer wait.Stop()
	select {
	case <-stepped:
	case <-wait.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.paint(time.Now())
	out.Transfers = l.transfers[o.Node]
	delete(l.transfers, o.Node)
	return out, nil
}

// run steps until ctx ends.
func (l *leading) run(ctx context.Context) {
	every := time.NewTicker(stepPeriod)
	defer every.Stop()
	for {
		l.step(ctx)
		select {
		case <-l.wake:
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// step lets the coordinator decide once and carries its commands out, one
// after the other: it decides again only on a view that has them.
func (l *leading) step(ctx context.Context) {
	view := l.m.opts.Metadata.View()
	l.mu.Lock()
	if !l.leads() {
		close(l.stepped) // for those who wait for a step that does not come
		l.stepped = make(chan struct{})
		l.mu.Unlock()
		return
	}
	in := coordinator.Input{Now: time.Now(), View: view, Reachable: l.m.reachable(view), Orders: l.orders}
	for _, o := range l.inbox {
		in.Reports = append(in.Reports, o.Report)
	}
	clear(l.inbox)
	l.orders = nil
	coord, term := l.coord, l.term
	plan := coord.Step(in)
	for _, t := range plan.Transfers { // each is asked for once, and again when it came to nothing
		l.transfers[t.From] = append(l.transfers[t.From], &peerv1.Transfer{ShardId: uint32(t.Shard), From: string(t.From), To: string(t.To)})
	}
	l.progress = plan.Progress
	close(l.stepped)
	l.stepped = make(chan struct{})
	l.mu.Unlock()
	for _, command := range plan.Commands {
		if !l.propose(ctx, term, command) {
			return
		}
	}
	if len(plan.Commands) > 0 {
		wake(l.wake)
	}
}

// propose carries one command of a plan out; false when the rest of the plan
// is void.
func (l *leading) propose(ctx context.Context, term sharding.Term, command []byte) bool {
	if now, leads := l.m.opts.Metadata.Leads(); !leads || now != term {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	result, err := l.m.opts.Metadata.DoHere(ctx, command)
	if err == nil {
		_, err = meta.DecodeResult(result)
		if err != nil {
			l.m.opts.Logger.Debug("the metadata refused the coordinator", "error", err)
		}
		return true
	}
	l.m.opts.Logger.Debug("the coordinator's command is not confirmed", "error", err)
	return false
}

// reachable are the members that this node hears, and itself.
func (m *Member) reachable(view *meta.View) map[sharding.NodeID]bool {
	out := map[sharding.NodeID]bool{}
	for _, member := range view.Members() {
		out[member.Node] = m.opts.Heard(member.Node)
	}
	return out
}

// paint makes the picture of the cluster. It is called with the lock held.
func (l *leading) paint(now time.Time) *peerv1.ReportResponse {
	out := &peerv1.ReportResponse{}
	best := map[sharding.ShardID]*peerv1.ShardState{}
	for node, a := range l.latest {
		fresh := now.Sub(a.at) < keepReports
		out.Nodes = append(out.Nodes, &peerv1.NodeState{NodeId: string(node), Reachable: fresh && l.m.opts.Heard(node), Replicas: a.Replicas})
		for i := range a.Shards {
			r := &a.Shards[i]
			if old := best[r.Shard]; !r.Leader || !fresh || old != nil && old.Term >= uint64(r.Term) {
				continue
			}
			best[r.Shard] = &peerv1.ShardState{
				ShardId: uint32(r.Shard), Leader: string(node), Term: uint64(r.Term), Voters: numbers(r.Voters), Learners: numbers(r.Learners),
				Entities: a.sizes[r.Shard].entities, Bytes: a.sizes[r.Shard].bytes, Applied: r.Applied,
			}
		}
	}
	for _, s := range best {
		out.Shards = append(out.Shards, s)
	}
	return out
}

// Order gives the coordinator an order and returns once it stands. It fails
// with coordinator.ErrRefused, or with a *sharding.NotLeaderError on any node
// but the coordinator's.
func (m *Member) Order(ctx context.Context, o coordinator.Order) (remaining int, err error) {
	return m.coord.order(ctx, o)
}

func (l *leading) order(ctx context.Context, o coordinator.Order) (remaining int, err error) {
	l.mu.Lock()
	if !l.leads() {
		l.mu.Unlock()
		return 0, l.m.opts.Metadata.notLeader()
	}
	l.number++
	o.ID = l.number
	term := l.term
	l.orders = append(l.orders, o)
	for {
		stepped := l.stepped
		l.mu.Unlock()
		wake(l.wake)
		select {
		case <-stepped:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		l.mu.Lock()
		if !l.leads() || l.term != term {
			l.mu.Unlock()
			return 0, l.m.opts.Metadata.notLeader()
		}
		for _, p := range l.progress {
			if p.ID == o.ID {
				l.mu.Unlock()
				return p.Remaining, p.Err
			}
		}
	}
}
