package entityapi

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/eventlog/outbox"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// RunInfo describes a run: an entity of a workflow type.
type RunInfo struct {
	ID          sharding.EntityID
	Status      journal.RunStatus // has no State if there is no run with this id
	Began       int64             // Unix nanoseconds of the shard's log clock
	UpdatedAt   int64             // time of the last record
	Sequence    journal.Sequence
	End         request.RunEnd // the end of a run that has ended, if it was requested
	Quarantined bool
	LastError   string
}

// RunQuery selects runs of one shard.
type RunQuery struct {
	Type     string
	IDPrefix string
	State    journal.RunState // 0 selects all
	After    string           // only ids greater than this one
	Limit    int              // at least 1
}

// RunPage is a part of a listing, in the order of ids.
type RunPage struct {
	Runs []RunInfo
	Next string // the id after which to continue; empty at the end
}

// Runs returns a reader of the runs whose shards this node leads.
func (p *Parts) Runs() runs { return runs{p} }

// runs reads runs from the journal. It calls no guest.
type runs struct{ *Parts }

// IsWorkflow reports whether the node serves the type as a workflow.
func (s runs) IsWorkflow(entityType string) bool {
	t := s.Types.Lookup(entityType)
	return t != nil && t.Workflow
}

// Run describes a run. It first confirms that this node leads the shard, so
// that the description is not older than the call.
func (s runs) Run(ctx context.Context, id sharding.EntityID) (RunInfo, error) {
	shard := s.ShardRouter.ShardOf(id)
	if err := s.catchUp(ctx, shard); err != nil {
		return RunInfo{}, err
	}
	info, err := s.Machine.Info(shard, id)
	if err != nil {
		return RunInfo{}, err
	}
	out, err := runInfo(id, &info.Head)
	if err != nil {
		return out, err
	}
	if out.Status.State == journal.RunRunning {
		err = s.addFaults(ctx, []*RunInfo{&out})
	} else if out.Status.State != 0 {
		out.End, err = s.end(ctx, shard, id, info.Sequence)
	}
	return out, err
}

// catchUpPause is the pause between two checks of the applied index. It is
// rarely needed, because a leader applies committed entries at once.
const catchUpPause = time.Millisecond

// catchUp waits until everything that was acknowledged before the call is
// applied here, and fails if this node does not lead the shard.
func (s runs) catchUp(ctx context.Context, shard sharding.ShardID) error {
	committed, err := s.Commits.Confirm(ctx, []sharding.ShardID{shard})
	if err != nil {
		return err
	}
	for {
		if applied, _ := s.Machine.Applied(shard); applied >= committed[0] {
			return nil
		}
		select {
		case <-time.After(catchUpPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// runInfo returns the information about a run that its entity row has.
func runInfo(id sharding.EntityID, h *store.Head) (RunInfo, error) {
	out := RunInfo{ID: id, Began: h.Run.Began(), UpdatedAt: h.UpdatedAt, Sequence: h.Sequence}
	var err error
	out.Status, err = h.Run.Status()
	return out, err
}

// errRunEndRead stops a read at the record that ended a run. Later records, such
// as those of repeated starts, have no events.
var errRunEndRead = errors.New("the end of the run is read")

// end reads the event that ended a run.
func (s runs) end(ctx context.Context, shard sharding.ShardID, id sharding.EntityID, last journal.Sequence) (end request.RunEnd, err error) {
	err = s.Machine.Read(ctx, shard, id, last, func(_ journal.Position, r *journal.Record) error {
		if n := len(r.Events); n > 0 && r.Events[n-1].Type == abi.RunEnded {
			end = request.ParseRunEnd(r.Events[n-1].Payload)
			return errRunEndRead
		}
		return nil
	})
	if errors.Is(err, errRunEndRead) {
		err = nil
	}
	return end, err
}

// addFaults adds the faults of open runs, which only executors know.
func (s runs) addFaults(ctx context.Context, of []*RunInfo) error {
	if len(of) == 0 {
		return nil
	}
	ids := make([]sharding.EntityID, len(of))
	for i, r := range of {
		ids[i] = r.ID
	}
	live, err := s.inspect(ctx, ids)
	for i, l := range live {
		if l != nil {
			of[i].Quarantined, of[i].LastError = !l.QuarantinedUntil.IsZero(), l.LastErr
		}
	}
	return err
}

// WatchRun returns a channel that receives after records of the run were
// applied, and the function that ends the watch.
func (s runs) WatchRun(id sharding.EntityID) (<-chan struct{}, func()) {
	return watch(func() (<-chan struct{}, func(), error) { return s.Machine.Subscribe(s.ShardRouter.ShardOf(id), id) })
}

// ListRuns lists runs of a shard. It may return fewer than there are.
func (s runs) ListRuns(ctx context.Context, shard sharding.ShardID, q RunQuery) (RunPage, error) {
	leave, err := s.scan(ctx)
	if err != nil {
		return RunPage{}, err
	}
	defer leave()
	var out RunPage
	if q.State == journal.RunRunning {
		out, err = s.listOpen(shard, q)
	} else {
		out, err = s.listRows(shard, q)
	}
	if err != nil {
		return out, err
	}
	var open []*RunInfo
	for i := range out.Runs {
		if out.Runs[i].Status.State == journal.RunRunning {
			open = append(open, &out.Runs[i])
		}
	}
	return out, s.addFaults(ctx, open)
}

// listOpen lists open runs by their index. A run that ends between the reads of
// the index and of its row is left out.
func (s runs) listOpen(shard sharding.ShardID, q RunQuery) (out RunPage, err error) {
	ids, err := s.Machine.ListRuns(shard, outbox.RunQuery{Type: q.Type, IDPrefix: q.IDPrefix, After: q.After, Limit: q.Limit})
	if err != nil {
		return out, err
	}
	for _, name := range ids {
		id := sharding.EntityID{Type: q.Type, ID: name}
		info, err := s.Machine.Info(shard, id)
		if err != nil {
			return out, err
		}
		if !info.Run.IsOpen() {
			continue
		}
		run, err := runInfo(id, &info.Head)
		if err != nil {
			return out, err
		}
		out.Runs = append(out.Runs, run)
	}
	if len(ids) == q.Limit {
		out.Next = ids[len(ids)-1]
	}
	return out, nil
}

// listRows lists runs by the entity rows of the type.
func (s runs) listRows(shard sharding.ShardID, q RunQuery) (out RunPage, err error) {
	ask := eventlog.PageQuery{Type: q.Type, IDPrefix: q.IDPrefix, After: q.After, Looks: listRows, Limit: q.Limit}
	if q.State != 0 {
		ask.Limit = math.MaxInt
	}
	page, err := s.Machine.Page(shard, ask)
	if err != nil {
		return out, err
	}
	for i := range page.Entities {
		e := &page.Entities[i]
		if e.Run == "" || q.State != 0 && e.Run.State() != q.State {
			continue
		}
		if len(out.Runs) == q.Limit {
			out.Next = out.Runs[q.Limit-1].ID.ID
			return out, nil
		}
		run, err := runInfo(e.Entity, &e.Head)
		if err != nil {
			return out, err
		}
		out.Runs = append(out.Runs, run)
	}
	out.Next = page.Next
	return out, nil
}
