package peer

import (
	"context"
	"time"
)

// States of a peer:
//
//	unknown --heard--> heard <--> silent
//	unknown --------------------> silent
//	                   heard <--> gone --> silent
//
// To all but those who follow OnGone, a node that seems gone is heard.
const (
	stateUnknown = iota
	stateHeard
	stateGone
	stateSilent
)

// heard says whether the node counts as heard, as of the last look.
func (q *peer) heard() bool {
	state := q.state.Load()
	return state == stateHeard || state == stateGone
}

// touch notes that something arrived from the node just now.
func (q *peer) touch() {
	q.signs.Arrived(q.owner.now())
	q.stir()
}

// turned notes how often the node's raft loop has gone round.
func (q *peer) turned(turns uint64) {
	q.signs.Turned(turns, q.owner.now())
	q.stir()
}

// stir has a node looked at that was not heard.
func (q *peer) stir() {
	if q.state.Load() != stateHeard {
		select {
		case q.owner.noticed <- struct{}{}:
		default:
		}
	}
}

// watch looks at who is silent until ctx ends. It looks seven times within the
// time after which a node counts as silent.
//
// A process that was stopped or starved wakes up with everyone's last word
// long ago, and their words since unread. So where its own looks lie far
// apart, it gives everyone a new span.
func (p *Peers) watch(ctx context.Context) {
	every := p.opts.SilentAfter / 7
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	looked, since := p.now(), int64(0)
	for {
		select {
		case <-ticker.C:
			now := p.now()
			if now-looked > int64(3*every) {
				since = now
			}
			looked = now
		case <-p.noticed:
		case <-ctx.Done():
			return
		}
		for _, q := range *p.table.Load() {
			q.look(p.now(), since)
		}
	}
}

// look moves the state of a peer and says so. Nothing before since counts as
// silence.
func (q *peer) look(now, since int64) {
	if q.renewed.Swap(false) && q.heard() {
		q.state.Store(stateSilent)
		q.owner.opts.OnSilent(q.id)
	}
	patience := q.owner.opts.patience()
	silent := q.signs.Silent(now, since, patience)
	switch state := q.state.Load(); {
	case silent && state != stateSilent:
		q.state.Store(stateSilent)
		if state == stateUnknown {
			q.owner.opts.Logger.Debug("a node was never heard", "node_id", q.id)
		} else {
			q.lost = true
			q.owner.opts.Logger.Warn("nothing is heard of a node any more", "node_id", q.id)
		}
		q.owner.opts.OnSilent(q.id)
	case state == stateHeard && q.signs.Ended():
		q.state.Store(stateGone)
		q.owner.opts.Logger.Debug("the process of a node seems to have ended", "node_id", q.id)
		q.owner.opts.OnGone(q.id)
	case state != stateHeard && q.signs.Heard(now, patience) && !q.signs.Ended():
		q.state.Store(stateHeard)
		if q.lost {
			q.lost = false
			q.owner.opts.Logger.Info("a node is heard again", "node_id", q.id)
		} else {
			q.owner.opts.Logger.Debug("a node is heard", "node_id", q.id)
		}
		q.again()
		q.owner.opts.OnHeard(q.id)
	}
}
