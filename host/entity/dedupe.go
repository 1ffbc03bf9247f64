package entity

import (
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
)

// note adds a command to the entity's window and its filter.
func (e *entity) note(r window.Command) {
	final := e.seen.Add(&e.shard.opts.Window, r)
	if f := e.updateFilter(final); f != nil {
		f.Add(r.ID)
	}
}

// noteAll adds the commands of a chunk of history.
func (e *entity) noteAll(seen window.Batch) {
	e.seen.AddAll(&e.shard.opts.Window, seen, func(final bool) *window.Filter { return e.updateFilter(final) })
}

// updateFilter maintains the entity's filter after its window has taken a command.
func (e *entity) updateFilter(final bool) *window.Filter {
	if e.extra == nil && e.seen.AtMost(e.shard.opts.FilterAbove) {
		return nil
	}
	return e.withExtra().beyond.Follow(&e.seen, e.shard.opts.FilterAbove, final)
}

// windowBuilt sets what the rebuilt window knows about forgotten commands.
// skipped is that of window.Batch.
func (e *entity) windowBuilt(before int64, skipped bool) {
	e.seen.EndRebuild(&e.shard.opts.Window, before, e.shard.logNow(), skipped || e.extra != nil && e.extra.beyond.Partial)
}

// rejectForgotten rejects a retry if the entity may have executed and
// forgotten an earlier attempt. If only a part of the window is in memory, it
// first reloads the entity with the whole window; the request then comes
// before other requests.
func (d *decider) rejectForgotten(e *entity, r *request.Request, now int64) bool {
	if !r.Again || r.First.IsZero() || e.seen.Reaches(e.shard.FirstAttempt(d.now, r.First, now)) {
		return false
	}
	if e.extra != nil && e.extra.beyond.Partial {
		d.readWhole(e, r)
		return true
	}
	d.stats.Forgotten++
	e.shard.settle(r, request.Result{Err: request.ErrForgotten})
	return true
}

// answerKnown answers a command whose id the entity has already executed.
func (e *entity) answerKnown(r *request.Request, hash uint64, now int64) bool {
	m, found, live := e.seen.Find(&e.shard.opts.Window, r.ID, now)
	switch {
	case live:
		e.answerStored(r, &m, hash)
	case found && r.Again: // the command is too old to answer from the window
		e.shard.stats.Forgotten++
		e.shard.settle(r, request.Result{Err: request.ErrForgotten})
	default:
		return false
	}
	return true
}

// mayBeOlder reports whether the command's id may be in a part of the window
// that is not in memory. If so, it reloads the entity with its whole window;
// the request then comes before other requests.
func (d *decider) mayBeOlder(e *entity, r *request.Request) bool {
	if e.extra == nil || !e.extra.beyond.MayHold(r.ID) {
		return false
	}
	d.readWhole(e, r)
	return true
}

// readWhole reloads an entity with its whole window. The request is then the
// first that the entity serves.
func (d *decider) readWhole(e *entity, r *request.Request) {
	e.waiting.Unshift(r)
	e.extra.whole = true
	d.unloaded[e] = struct{}{}
	d.exec.reload(e)
}

// answerStored answers a command whose id the entity has already executed. The
// stored reply may still be uncommitted; it is released when all of the
// entity's records so far are decided, and the command is decided again if one
// of them is lost.
func (e *entity) answerStored(r *request.Request, m *window.Command, hash uint64) {
	if m.Hash != hash {
		r.Result = request.Result{Err: request.ErrCommandIDReused}
		e.shard.awaitCommit(r, e.last, true)
		return
	}
	e.shard.stats.Duplicates++
	r.Result = request.Result{Payload: m.Reply, Sequence: m.Sequence, EventCount: int(m.Events), Duplicate: true}
	e.shard.awaitCommit(r, e.last, e.typ.Transient)
}
