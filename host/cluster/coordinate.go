package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	// stepPeriod is the minimum time between two steps. There are as many
	// reports as nodes, and one step processes all reports that arrived
	// since the previous step.
	stepPeriod = 250 * time.Millisecond
	// idlePeriod is the time between two steps, and between two reconciliations of
	// the replicas, if nothing changes.
	idlePeriod = time.Second
	// proposeTimeout bounds the wait for one command of a plan.
	proposeTimeout = 5 * time.Second
	// pushTimeout bounds a call that asks a node to transfer leaderships.
	pushTimeout = time.Second
	// requestTime is how long a request for a leadership transfer stays valid.
	requestTime = 2 * time.Second
	// refusedSteps is the number of consecutive steps with a rejected command
	// after which the rejection is logged and steps are idlePeriod apart.
	// Usually a rejected command was overtaken by a change and is not requested
	// again. The rejection is logged again after refusedAgain.
	refusedSteps = 20
	refusedAgain = time.Minute
)

// leading runs the coordinator while this node leads the metadata shard.
//
// Reports of nodes arrive concurrently and often. take only stores them and
// answers with what earlier steps decided, so a report never waits for a
// decision. One goroutine executes steps: it passes all stored reports and
// operations to the coordinator, without holding mu, and then proposes the
// plan's commands one after the other. The next step uses a view that contains
// them.
//
// Everything is bound to the term in which this node was elected. When the term
// changes, forget drops all state, and the rest of a plan of the old term is
// not proposed. A new coordinator needs no state of the old coordinator,
// because decisions are in the metadata and nodes report again. Only orders
// to move or rebalance end with the term; endOrders logs them.
type leading struct {
	m     *Member
	mu    sync.Mutex
	term  sharding.Term // term of coord
	coord *coordinator.Coordinator

	inbox       map[sharding.NodeID]observed // reports since the last step
	latest      map[sharding.NodeID]arrival
	operations  []coordinator.Operation               // requested since the last step
	number      uint64                                // ID of the last operation
	transfers   map[sharding.NodeID][]transferRequest // requests to return with the node's next report
	pushing     map[sharding.NodeID]bool              // nodes that are being asked to transfer leaderships
	outside     map[sharding.NodeID]bool              // nodes that the metadata shard's group lacks
	given       map[uint64]coordinator.Operation      // operations that are not done, by ID
	awaited     map[uint64]*coordinator.Progress      // by operation ID; nil until the caller can be answered
	stepped     chan struct{}                         // closed and replaced after each step
	viewChanges viewChanges
	impairments []coordinator.Impairment // impairments after the last step
	pending     []coordinator.Pending    // pending operations after the last step

	// The inputs of the last step, and whether anything has happened since then.
	at    time.Time
	view  *meta.View
	reach map[sharding.NodeID]bool
	news  bool

	refused       int       // consecutive steps in which the metadata rejected a command
	refusedLogged time.Time // when the rejection was logged
}

// transferRequest requests a leadership transfer. It expires after requestTime,
// because by then the coordinator has made new decisions.
type transferRequest struct {
	*peerv1.Transfer
	at time.Time
}

// arrival is the last report of a node, with the time when it arrived.
type arrival struct {
	observed
	at time.Time
}

func (l *leading) init(m *Member) {
	l.m, l.stepped = m, make(chan struct{})
	l.pushing = map[sharding.NodeID]bool{}
	l.forget()
}

// forget resets all state, because a new coordinator starts without any.
func (l *leading) forget() {
	l.endOrders()
	l.refused = 0
	l.inbox, l.latest = map[sharding.NodeID]observed{}, map[sharding.NodeID]arrival{}
	l.transfers, l.operations, l.awaited = map[sharding.NodeID][]transferRequest{}, nil, map[uint64]*coordinator.Progress{}
	l.outside, l.view, l.news, l.viewChanges, l.impairments, l.pending = nil, nil, true, viewChanges{}, nil, nil
	l.coord = coordinator.New(l.m.opts.Coordinator)
}

// endOrders logs the move and rebalance orders that end with this coordinator.
// Orders of other kinds are in the metadata. l.mu must be held.
func (l *leading) endOrders() {
	for _, o := range l.given {
		if o.Kind == coordinator.OperationMove || o.Kind == coordinator.OperationRebalance {
			l.m.opts.Logger.Warn("an operation was lost with its coordinator; repeat it", "order", o.String())
		}
	}
	l.given = map[uint64]coordinator.Operation{}
}

// leads reports whether this node leads the metadata shard. It resets the state
// if the term is new. l.mu must be held.
func (l *leading) leads() bool {
	term, leads := l.m.opts.Metadata.Leads()
	if leads && term != l.term {
		l.term = term
		l.forget()
	}
	return leads
}

// take stores a node's report and returns the requests to this node that
// earlier steps made; it does not wait for a step. If same is set, the
// report is equal to the node's last report. known is the version of the
// cluster view that the node has; changes means that the node accepts a
// delta against that version.
func (l *leading) take(o observed, same bool, known uint64, changes bool) (*peerv1.ReportResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads() {
		return nil, l.m.opts.Metadata.notLeader()
	}
	if same {
		last, heard := l.latest[o.Node]
		if !heard || last.Incarnation != o.Incarnation {
			return &peerv1.ReportResponse{Whole: true}, nil
		}
		last.Seq = o.Seq
		o = last.observed
	}
	now := time.Now()
	before := l.latest[o.Node].observed
	l.inbox[o.Node], l.latest[o.Node] = o, arrival{o, now}
	if !same {
		l.news = true
		l.viewChanges.take(before, o)
	}
	out := &peerv1.ReportResponse{Outside: l.outside[o.Node]}
	for _, r := range l.transfers[o.Node] {
		if time.Since(r.at) < requestTime {
			out.Transfers = append(out.Transfers, r.Transfer)
		}
	}
	delete(l.transfers, o.Node)
	l.show(out, known, changes)
	return out, nil
}

// run executes steps until ctx ends, at most one per stepPeriod.
func (l *leading) run(ctx context.Context) {
	every := time.NewTicker(stepPeriod)
	defer every.Stop()
	for {
		l.step(ctx)
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// step lets the coordinator decide once and executes its commands in order. The
// next step needs a view that contains their effects. If nothing has changed
// except the time, step runs only every idlePeriod.
func (l *leading) step(ctx context.Context) {
	l.mu.Lock()
	if !l.leads() {
		l.endOrders()
		l.endStep() // release callers that wait for a step
		l.mu.Unlock()
		return
	}
	view, now := l.m.opts.Metadata.View(), time.Now()
	reach := l.m.reachable(view)
	if !l.news && len(l.operations) == 0 && view == l.view && maps.Equal(reach, l.reach) && now.Sub(l.at) < idlePeriod {
		l.mu.Unlock()
		return
	}
	in := coordinator.Input{Now: now, View: view, Reachable: reach, Operations: l.operations}
	for _, o := range l.inbox {
		in.Reports = append(in.Reports, o.Report)
	}
	clear(l.inbox)
	l.operations = nil
	coord, term := l.coord, l.term
	l.at, l.view, l.reach, l.news = now, view, reach, false
	l.mu.Unlock()
	plan := coord.Step(in) // without the lock, so that reports do not wait
	l.mu.Lock()
	if l.term != term { // a different coordinator decides now and shares no state with this one
		l.mu.Unlock()
		return
	}
	l.news = l.news || len(plan.Commands)+len(plan.Transfers)+len(plan.Progress) > 0
	l.outside = set(plan.Rejoin)
	if !slices.Equal(l.impairments, plan.Impairments) {
		l.impairments, l.viewChanges.stale = plan.Impairments, true
	}
	if !slices.Equal(l.pending, plan.Pending) {
		l.pending, l.viewChanges.stale = plan.Pending, true
	}
	for _, p := range plan.Progress {
		l.answerOperation(p)
	}
	l.endStep()
	l.ask(ctx, plan.Transfers)
	l.mu.Unlock()
	refused := error(nil)
	for _, command := range plan.Commands {
		why, continues := l.propose(ctx, term, command)
		if !continues {
			return
		}
		if why != nil {
			refused = why
		}
	}
	l.noteRefused(refused)
}

// answerOperation answers the caller of an operation. If the caller was already answered
// or is gone, it logs a failure instead. l.mu must be held.
func (l *leading) answerOperation(p coordinator.Progress) {
	// A step reports the progress once, and the caller may not run before the
	// next steps, so it is stored.
	answer, waits := l.awaited[p.ID]
	if waits && answer == nil && (p.Durable || p.Done) {
		l.awaited[p.ID] = &p
	} else if p.Done && p.Err != nil {
		l.m.opts.Logger.Warn("an accepted operation failed", "order", l.given[p.ID].String(), "error", p.Err)
	}
	if p.Done {
		delete(l.given, p.ID)
	}
}

// noteRefused counts consecutive steps in which the metadata rejected a
// command. The next step requests the same command again, so a persistent
// rejection is logged for the operators, and steps become rarer to keep the
// metadata log small.
func (l *leading) noteRefused(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if why == nil {
		l.refused = 0
		return
	}
	if l.refused++; l.refused < refusedSteps {
		return
	}
	l.news = false
	if now := time.Now(); now.Sub(l.refusedLogged) >= refusedAgain {
		l.refusedLogged = now
		l.m.opts.Logger.Warn("the metadata repeatedly rejects the coordinator's commands", "steps", l.refused, "error", why)
	}
}

// endStep wakes all callers that wait for the step. l.mu must be held.
func (l *leading) endStep() {
	close(l.stepped)
	l.stepped = make(chan struct{})
}

func set(nodes []sharding.NodeID) map[sharding.NodeID]bool {
	out := make(map[sharding.NodeID]bool, len(nodes))
	for _, node := range nodes {
		out[node] = true
	}
	return out
}

// ask sends transfer requests to nodes, one call per node. If a call fails,
// or if another call to the node is in progress, the node receives the
// requests in the answer to its next report. l.mu must be held.
func (l *leading) ask(ctx context.Context, transfers []coordinator.Transfer) {
	now, asked := time.Now(), map[sharding.NodeID][]transferRequest{}
	for _, t := range transfers {
		asked[t.From] = append(asked[t.From], transferRequest{&peerv1.Transfer{ShardId: uint32(t.Shard), From: string(t.From), To: string(t.To)}, now})
	}
	for node, requests := range asked {
		if l.pushing[node] {
			l.transfers[node] = append(l.transfers[node], requests...)
			continue
		}
		l.pushing[node] = true
		term := l.term
		l.m.tasks.Go(func() { l.push(ctx, node, term, requests) })
	}
}

// push asks one node to transfer leaderships.
func (l *leading) push(ctx context.Context, node sharding.NodeID, term sharding.Term, requests []transferRequest) {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	transfers := make([]*peerv1.Transfer, len(requests))
	for i, r := range requests {
		transfers[i] = r.Transfer
	}
	var err error
	if node == l.m.opts.Node {
		l.m.transferLeaders(transfers)
	} else {
		err = l.m.opts.Peers.TransferLeaders(ctx, node, transfers)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pushing, node)
	if err != nil && l.term == term {
		l.transfers[node] = append(l.transfers[node], requests...)
	}
}

// propose executes one command of a plan. refused is the metadata's rejection,
// if any. mayContinue is false if the rest of the plan must be dropped.
func (l *leading) propose(ctx context.Context, term sharding.Term, command []byte) (refused error, continues bool) {
	if now, leads := l.m.opts.Metadata.Leads(); !leads || now != term {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	result, err := l.m.opts.Metadata.doHere(ctx, command)
	if err != nil {
		l.m.opts.Logger.Debug("a command of the coordinator has an unknown outcome", "error", err)
		return nil, false
	}
	r, refused := meta.DecodeResult(result)
	if refused != nil {
		l.m.opts.Logger.Debug("the metadata rejected a command of the coordinator", "error", refused)
	}
	if len(r.Collected) > 0 {
		l.m.opts.Observer.OnCollected(r.Collected)
	}
	return refused, true
}

// reachable returns for each member whether this node hears from it. It
// includes this node.
func (m *Member) reachable(view *meta.View) map[sharding.NodeID]bool {
	out := map[sharding.NodeID]bool{}
	for _, member := range view.Members() {
		out[member.Node] = m.isAlive(member.Node)
	}
	return out
}

// Operate hands an operation to the coordinator and returns when the
// operation is accepted durably or done. It fails with
// coordinator.ErrRefused, or with a *sharding.NotLeaderError if this node
// does not run the coordinator.
func (m *Member) Operate(ctx context.Context, o coordinator.Operation) (remaining int, err error) {
	return m.coord.operate(ctx, o)
}

func (l *leading) operate(ctx context.Context, o coordinator.Operation) (remaining int, err error) {
	l.mu.Lock()
	if !l.leads() {
		l.mu.Unlock()
		return 0, l.m.opts.Metadata.notLeader()
	}
	if len(l.given) >= coordinator.MaxOperations {
		l.mu.Unlock()
		return 0, fmt.Errorf("%w: %d operations are pending, which is the limit: retry when one has ended", coordinator.ErrRefused, coordinator.MaxOperations)
	}
	l.number++
	o.ID = l.number
	term := l.term
	l.operations = append(l.operations, o)
	l.given[o.ID] = o
	awaited := l.awaited
	awaited[o.ID] = nil
	defer func() {
		l.mu.Lock()
		delete(awaited, o.ID)
		l.mu.Unlock()
	}()
	for {
		stepped := l.stepped
		l.mu.Unlock()
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
		if p := awaited[o.ID]; p != nil {
			l.mu.Unlock()
			return p.Remaining, p.Err
		}
	}
}
