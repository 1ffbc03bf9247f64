package entity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// MetadataRequests handles the events of the metadata shard, which no executor
// runs. No method may block.
type MetadataRequests interface {
	LeaderChanged(term sharding.Term, leader sharding.ReplicaID, self bool)
	OnApplied(eventlog.ApplyResult)
	OnDropped(fence sharding.Term, proposal uint64)
	ReadConfirmed(token, index uint64)
	ReadFailed(token uint64)
	OnInstalled(index uint64, stopped error)
}

// ShardRouter owns the executors of a node. It is safe for concurrent use.
type ShardRouter struct {
	executors []*executor
	locate    sharding.Locate
	meta      MetadataRequests
	leads     leads
	outside   remoteRequests // handles the outcomes of proposals and reads from outside the executors; may be nil
	outbox    outboxNotifier // is notified of sent messages; may be nil
	disputes  disputes       // knows disputed shards; may be nil
}

// remoteRequests handles the outcomes of proposals and reads that do not come
// from an executor. Their numbers have the highest bit set. No method may
// block.
type remoteRequests interface {
	OnApplied(*eventlog.ApplyResult)
	OnDropped(proposal uint64, err error)
	ReadConfirmed(token, index uint64)
	ReadFailed(token uint64, err error)
}

const foreign = uint64(1) << 63

// disk is the disk of the node's data directory.
type disk interface {
	// ReadOnly reports whether the disk has no room for commands.
	ReadOnly() bool
}

// disputes knows which shards accept no requests.
type disputes interface {
	// Refuses returns why requests to a shard are rejected now, or nil. It must
	// not block.
	Refuses(sharding.ShardID) error
}

// outboxNotifier delivers messages.
type outboxNotifier interface {
	// NotifySent is called when an entry has sent messages. It must not block.
	NotifySent(sharding.ShardID)
}

// ShardRouterOptions configure a ShardRouter.
type ShardRouterOptions struct {
	Executors int             // number of executors, at least 1
	Shards    uint32          // number of data shards of the cluster, at least 1
	Locate    sharding.Locate // maps entities to shards; the default hashes type and id
	Metadata  MetadataRequests
	Outside   remoteRequests // nil if only executors propose and read
	Executor  Options        // options of each executor
	Disk      disk           // commands are rejected while it is full; may be nil
	Disputes  disputes       // knows disputed shards; may be nil
	Outbox    outboxNotifier // is notified of sent messages; may be nil
}

// NewShardRouter starts the executors.
func NewShardRouter(opts ShardRouterOptions) (*ShardRouter, error) {
	if opts.Executors < 1 || opts.Shards < 1 {
		return nil, fmt.Errorf("shard router: needs at least one executor and one shard, got %d and %d", opts.Executors, opts.Shards)
	}
	r := &ShardRouter{locate: opts.Locate.OrDefault(opts.Shards), meta: opts.Metadata, outside: opts.Outside, outbox: opts.Outbox, disputes: opts.Disputes}
	r.leads.init(opts.Shards)
	opts.Executor.longReads = newLongReads()
	for range opts.Executors {
		r.executors = append(r.executors, newExecutor(opts.Executor, opts.Disk))
	}
	return r, nil
}

func (r *ShardRouter) executorOf(s sharding.ShardID) *executor {
	return r.executors[int(s)%len(r.executors)]
}

// ShardOf returns the shard of an entity. For an unknown type this is the
// metadata shard, which has no entities.
func (r *ShardRouter) ShardOf(e sharding.EntityID) sharding.ShardID {
	shard, _ := r.locate(e)
	return shard
}

// Submit passes requests to their executors in order; the order is kept per
// entity. Each request is completed exactly once. Submit never blocks and keeps
// no reference to the slice.
func (r *ShardRouter) Submit(reqs []*request.Request) {
	refused := false
	for _, q := range reqs {
		var known bool
		q.Shard, known = r.locate(q.Entity)
		refused = refused || !known || r.disputed(q.Shard) != nil
	}
	if refused {
		reqs = r.refuse(reqs)
	}
	if len(r.executors) == 1 {
		r.executors[0].Submit(reqs)
		return
	}
	for i, l := range r.executors {
		var mine []*request.Request
		for _, q := range reqs {
			if int(q.Shard)%len(r.executors) == i {
				mine = append(mine, q)
			}
		}
		if len(mine) > 0 {
			l.Submit(mine)
		}
	}
}

// ListQuarantined returns ids of quarantined entities of a shard; see executor.ListQuarantined.
func (r *ShardRouter) ListQuarantined(ctx context.Context, q QuarantineQuery) ([]string, error) {
	return r.executorOf(q.Shard).ListQuarantined(ctx, q)
}

// Hot returns the busiest entities of each executor, at most limit of each.
func (r *ShardRouter) Hot(ctx context.Context, limit int) ([]resident.HotReport, error) {
	out := make([]resident.HotReport, len(r.executors))
	for i, l := range r.executors {
		var err error
		if out[i], err = l.Hot(ctx, limit); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// disputed returns why requests to a shard are rejected now, or nil.
func (r *ShardRouter) disputed(shard sharding.ShardID) error {
	if r.disputes == nil {
		return nil
	}
	return r.disputes.Refuses(shard)
}

// refuse answers requests that must be rejected, because this node does not
// know the entity's shard or the shard accepts no requests now, and returns the
// rest.
func (r *ShardRouter) refuse(reqs []*request.Request) []*request.Request {
	rest := make([]*request.Request, 0, len(reqs))
	for _, q := range reqs {
		err := r.disputed(q.Shard)
		if q.Shard == sharding.MetaShard {
			err = request.ErrNotServed
		}
		if err == nil {
			rest = append(rest, q)
			continue
		}
		q.Result = request.Result{Err: err}
		q.Done.Complete(q)
	}
	return rest
}

// Propose passes a request about a shard's messages to the shard's executor.
func (r *ShardRouter) Propose(shard sharding.ShardID, q *request.Request) {
	q.Shard = shard
	r.executorOf(shard).Submit([]*request.Request{q})
}

// LeaderChanged is called by the raft loop on every election.
func (r *ShardRouter) LeaderChanged(shard sharding.ShardID, term sharding.Term, leader sharding.ReplicaID, self bool) {
	r.leads.setLeader(shard, term, leader, self)
	if shard == sharding.MetaShard {
		r.meta.LeaderChanged(term, leader, self)
		return
	}
	r.executorOf(shard).LeaderChanged(shard, term, self)
}

// QuorumChanged is called by the raft loop when this node gains or loses
// contact with a quorum of the shard's voters.
func (r *ShardRouter) QuorumChanged(shard sharding.ShardID, ok bool) {
	r.leads.setQuorum(shard, ok)
}

// ProposalDropped is called by the raft loop if a proposal never entered the
// log.
func (r *ShardRouter) ProposalDropped(shard sharding.ShardID, fence sharding.Term, proposal uint64, err error) {
	if shard == sharding.MetaShard {
		r.meta.OnDropped(fence, proposal)
		return
	}
	if proposal&foreign != 0 && r.outside != nil {
		r.outside.OnDropped(proposal, err)
		return
	}
	r.executorOf(shard).NotifyDropped(shard, fence, proposal, err)
}

// ReadConfirmed is called by the raft loop when a ReadIndex round is confirmed.
func (r *ShardRouter) ReadConfirmed(shard sharding.ShardID, token, index uint64) {
	if shard == sharding.MetaShard {
		r.meta.ReadConfirmed(token, index)
		return
	}
	if token&foreign != 0 && r.outside != nil {
		r.outside.ReadConfirmed(token, index)
		return
	}
	r.executorOf(shard).ReadConfirmed(shard, token)
}

// ReadFailed is called by the raft loop when a ReadIndex round cannot be
// confirmed.
func (r *ShardRouter) ReadFailed(shard sharding.ShardID, token uint64, err error) {
	if shard == sharding.MetaShard {
		r.meta.ReadFailed(token)
		return
	}
	if token&foreign != 0 && r.outside != nil {
		r.outside.ReadFailed(token, err)
		return
	}
	r.executorOf(shard).ReadFailed(shard, token)
}

// OnApplied is called by the applier with apply results, in order per shard.
func (r *ShardRouter) OnApplied(vs []eventlog.ApplyResult) {
	batches := make([][]appliedEntry, len(r.executors))
	for i := range vs {
		v := &vs[i]
		if (v.Messages || v.Imported) && r.outbox != nil {
			r.outbox.NotifySent(v.Shard)
		}
		if v.NoOp {
			r.leads.noteTermStart(v.Shard, v.Term)
		}
		if v.Shard == sharding.MetaShard {
			r.meta.OnApplied(*v)
			continue
		}
		if v.Proposal&foreign != 0 && r.outside != nil {
			if v.Imported {
				r.executorOf(v.Shard).Reopen(v.Shard, v.Clock)
			}
			r.outside.OnApplied(v)
			continue
		}
		err := v.Err
		switch {
		case errors.Is(err, eventlog.ErrStopped):
			// Other replicas may apply the entry.
			err = fmt.Errorf("%w: %w", request.ErrOutcomeUnknown, err)
		case err != nil:
			err = fmt.Errorf("%w: %w", request.ErrNotApplied, err)
		}
		n := int(v.Shard) % len(r.executors)
		batches[n] = append(batches[n], appliedEntry{
			Shard: v.Shard, Term: v.Term, NoOp: v.NoOp, Fence: v.Fence, Proposal: v.Proposal, Index: v.Index, Clock: v.Clock, Revision: v.Revision, Err: err, Proof: v.Proof, Owing: v.Owing,
		})
	}
	for i, b := range batches {
		if len(b) > 0 {
			r.executors[i].NotifyApplied(b)
		}
	}
}

// OnInstalled is called by the applier when a snapshot has replaced a shard's
// state. The executors have none of the shard's entities, because this node
// does not lead the shard.
func (r *ShardRouter) OnInstalled(i eventlog.Installed) {
	if i.Shard == sharding.MetaShard {
		var stopped error
		if i.Err != nil {
			stopped = i.Err
		}
		r.meta.OnInstalled(i.Index, stopped)
	}
}

// ActivationsChanged must be called when the node serves newer activations.
func (r *ShardRouter) ActivationsChanged() {
	for _, l := range r.executors {
		l.ActivationsChanged()
	}
}

// IdleTimesChanged must be called when the settings of idle times or of
// suspended types have changed.
func (r *ShardRouter) IdleTimesChanged() {
	for _, l := range r.executors {
		l.IdleTimesChanged()
	}
}

// TypeStats returns the sums of all executors' counters by entity type.
func (r *ShardRouter) TypeStats() map[string]TypeStats {
	out := make(map[string]TypeStats)
	for _, l := range r.executors {
		for name, n := range l.TypeStats() {
			sum := out[name]
			sum.Commands += n.Commands
			sum.Fuel += n.Fuel
			sum.Resident += n.Resident
			sum.Events += n.Events
			sum.Rejected += n.Rejected
			sum.Faults += n.Faults
			out[name] = sum
		}
	}
	return out
}

// Stats returns the counters of each executor.
func (r *ShardRouter) Stats() []Stats {
	out := make([]Stats, len(r.executors))
	for i, l := range r.executors {
		out[i] = l.Stats()
	}
	return out
}

// Waiting is the number of requests that wait for an executor.
func (r *ShardRouter) Waiting() (n int) {
	for _, l := range r.executors {
		n += l.Waiting()
	}
	return n
}

// IsBusy reports whether requests wait for an executor.
func (r *ShardRouter) IsBusy() bool {
	return slices.ContainsFunc(r.executors, (*executor).IsBusy)
}

// Close stops the executors.
func (r *ShardRouter) Close(ctx context.Context) error {
	var errs []error
	for _, l := range r.executors {
		errs = append(errs, l.Close(ctx))
	}
	return errors.Join(errs...)
}
