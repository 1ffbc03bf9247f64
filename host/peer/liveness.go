package peer

import (
	"context"
	"time"
)

// States of a peer, in the field's terms: heard is alive, silent is suspected,
// gone means that its process seems to have ended:
//
//	unknown --heard--> heard <--> silent
//	unknown --------------------> silent
//	                   heard <--> gone --> silent
//
// Only OnGone tells gone from heard; for all other purposes a node that seems
// gone is alive.
const (
	stateUnknown = iota
	stateHeard
	stateGone
	stateSilent
)

// heard reports whether the node was alive at the last look.
func (q *peer) heard() bool {
	state := q.state.Load()
	return state == stateHeard || state == stateGone
}

// touch records that something arrived from the node now.
func (q *peer) touch() {
	q.signs.Arrived(q.owner.now())
	q.stir()
}

// turned records the iterations of the node's raft loop.
func (q *peer) turned(turns uint64) {
	q.signs.Turned(turns, q.owner.now())
	q.stir()
}

// stir triggers a look if the node was not alive.
func (q *peer) stir() {
	if q.state.Load() != stateHeard {
		select {
		case q.owner.noticed <- struct{}{}:
		default:
		}
	}
}

// watch checks until ctx ends which nodes are alive, seven times per
// SilentAfter.
//
// When a process that was stopped or starved continues, the last signs of all
// nodes are old, and newer ones are unread in its sockets. So if its own looks
// are far apart, watch gives every node a new SilentAfter.
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

// look updates the state of a peer and calls the callbacks. Time before since
// does not count.
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
