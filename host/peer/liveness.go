package peer

import (
	"context"
	"time"
)

// States of a peer:
//
//	unknown --arrival--> alive <--> suspected
//	unknown ----------------------> suspected
//	                     alive <--> failed --> suspected
//
// failed means that the node's process seems to have ended. Only PeerFailed
// distinguishes it from alive; for all other purposes a failed node is alive.
const (
	stateUnknown = iota
	stateAlive
	stateFailed
	stateSuspected
)

// isAlive reports whether the node was alive at the last look.
func (q *peer) isAlive() bool {
	state := q.state.Load()
	return state == stateAlive || state == stateFailed
}

// touch records that something has just arrived from the node.
func (q *peer) touch() {
	q.signs.NoteArrival(q.owner.now())
	q.stir()
}

// noteTurns records the iterations of the node's raft loop.
func (q *peer) noteTurns(turns uint64) {
	q.signs.NoteTurns(turns, q.owner.now())
	q.stir()
}

// stir makes the failure detector look at the node if it was not alive.
func (q *peer) stir() {
	if q.state.Load() != stateAlive {
		select {
		case q.owner.noticed <- struct{}{}:
		default:
		}
	}
}

// watch checks until ctx ends which nodes are alive, seven times per
// SuspectAfter.
//
// When a process that was stopped or starved continues, the last signs of
// all nodes are old, and newer signs are unread in its sockets. So if its
// own looks are far apart, watch gives every node a new SuspectAfter.
func (p *Peers) watch(ctx context.Context) {
	every := p.opts.SuspectAfter / 7
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

// look updates the state of a peer and calls the callbacks. Silence of the
// node before the time since does not count.
func (q *peer) look(now, since int64) {
	if q.renewed.Swap(false) && q.isAlive() {
		q.state.Store(stateSuspected)
		q.owner.opts.Observer.PeerSuspected(q.id)
	}
	patience := q.owner.opts.patience()
	silent := q.signs.IsSuspected(now, since, patience)
	switch state := q.state.Load(); {
	case silent && state != stateSuspected:
		q.state.Store(stateSuspected)
		if state == stateUnknown {
			q.owner.opts.Logger.Debug("no heartbeat from a node yet", "node_id", q.id)
		} else {
			q.lost = true
			q.owner.opts.Logger.Warn("no more heartbeats from a node", "node_id", q.id)
		}
		q.owner.opts.Observer.PeerSuspected(q.id)
	case state == stateAlive && q.signs.hasEnded():
		q.state.Store(stateFailed)
		q.owner.opts.Logger.Debug("the process of a node has probably ended", "node_id", q.id)
		q.owner.opts.Observer.PeerFailed(q.id)
	case state != stateAlive && q.signs.IsAlive(now, patience) && !q.signs.hasEnded():
		q.state.Store(stateAlive)
		if q.lost {
			q.lost = false
			q.owner.opts.Logger.Info("heartbeats from a node again", "node_id", q.id)
		} else {
			q.owner.opts.Logger.Debug("first heartbeat from a node", "node_id", q.id)
		}
		q.again()
		q.owner.opts.Observer.PeerAlive(q.id)
	}
}
