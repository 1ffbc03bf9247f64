package router

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// answerFrom sends an outcome from a node to the caller's node, unless the link
// over which the request came has broken.
func (w *model) answerFrom(o op) {
	if probe := (request.Request{Result: o.result}); o.result.Err != nil && comesBack(&probe) {
		l := &w.executors[o.node][o.req.Shard]
		l.refused = max(l.refused, o.req.Route.Round)
	}
	if o.node == 0 {
		w.complete(o.asked, o.result)
	} else {
		w.backs[o.node] = append(w.backs[o.node], o)
	}
}

// reply delivers one outcome over a link.
func (w *model) reply(node int) {
	if len(w.backs[node]) == 0 {
		return
	}
	o := w.backs[node][0]
	w.backs[node] = w.backs[node][1:]
	if o.link == w.links[node] {
		w.complete(o.asked, o.result)
	}
}

// lose records that the answer of a node is lost. The test does not check the
// order of a command whose rejection was lost: rejections are not in the
// idempotency window, so the command is decided again if it is sent again,
// possibly after later commands.
func (o op) lose() {
	if o.result.Err != nil {
		o.refused = true
	} else {
		o.unheard = true
	}
}

// decide makes an executor take one request.
func (w *model) decide(node, shard int) {
	l := &w.executors[node][shard]
	if len(l.inbox) == 0 {
		return
	}
	c := l.inbox[0]
	l.inbox = l.inbox[1:]
	o := op{copyOf: c, decided: w.step}
	switch n := w.rng.IntN(20); {
	case w.leader[shard] != node, c.req.Route.Round <= l.refused:
		hint := sharding.NodeID("")
		if at := w.leader[shard]; at >= 0 && n > 5 && node != 0 {
			hint = nodeName(at)
		}
		o.result.Err = &sharding.NotLeaderError{Leader: hint}
		w.answerFrom(o)
		return
	case n == 0:
		o.result.Err = request.ErrBusy
		w.answerFrom(o)
		return
	case c.executed > 0:
		o.result.Duplicate = true
	case slices.ContainsFunc(l.proposed, func(p op) bool { return p.asked == c.asked && p.write }):
		o.result.Duplicate = true
	case n < 8:
		o.result.Err = &request.RejectedError{Code: "no"}
	default:
		o.write = true
	}
	l.proposed = append(l.proposed, o)
}

// commit advances a leader's log by one entry, or releases a rejection, which
// does not wait for later commands.
func (w *model) commit(shard int) {
	if w.leader[shard] < 0 {
		return
	}
	l := &w.executors[w.leader[shard]][shard]
	if len(l.proposed) == 0 {
		return
	}
	// A rejection may wait for its ReadIndex while later commands commit.
	i := 0
	for i < len(l.proposed)-1 && l.proposed[i].result.Err != nil && w.rng.IntN(4) > 0 {
		i++
	}
	o := l.proposed[i]
	l.proposed = slices.Delete(slices.Clone(l.proposed), i, i+1)
	w.execute(o)
	w.answerFrom(o)
}

func (w *model) execute(o op) {
	if !o.write {
		return
	}
	if o.executed > 0 && w.fault == nil {
		w.fault = fmt.Errorf("command %d of stream %d took effect twice", o.index, o.stream)
	}
	o.executed = o.decided
}

// move ends a leadership. All proposals are answered as unknown, although some
// of them commit. All other requests are answered as not led.
func (w *model) move(shard, to int) {
	from := w.leader[shard]
	w.leader[shard] = to
	if from < 0 || from == to {
		return
	}
	w.seen["moved"]++
	l := &w.executors[from][shard]
	proposed := l.proposed
	l.proposed = nil
	kept := w.rng.IntN(len(proposed) + 1)
	for i, o := range proposed {
		if i < kept {
			w.execute(o)
			o.unheard = true
		}
		if o.write || o.result.Duplicate {
			o.result = request.Result{Err: request.ErrOutcomeUnknown}
		} else {
			o.result = request.Result{Err: &sharding.NotLeaderError{}}
			o.unconfirmed = true
		}
		w.answerFrom(o)
	}
}

// drop loses a proposal, and with it the decisions that were based on it.
func (w *model) drop(shard int) {
	if w.leader[shard] < 0 {
		return
	}
	l := &w.executors[w.leader[shard]][shard]
	if len(l.proposed) == 0 {
		return
	}
	w.seen["dropped"]++
	at := w.rng.IntN(len(l.proposed))
	lost := l.proposed[at].req.Entity
	var keep, gone []op
	for i, o := range l.proposed {
		if i >= at && o.req.Entity == lost {
			o.result = request.Result{Err: request.ErrNotApplied}
			if o.executed > 0 {
				o.result = request.Result{Duplicate: true}
			}
			gone = append(gone, o)
		} else {
			keep = append(keep, o)
		}
	}
	l.proposed = keep
	for _, o := range gone {
		w.answerFrom(o)
	}
}

// breakLink loses the messages in flight and the requests that the node has not
// decided yet. If silent is set, the node is suspected instead: the requests
// are given up but may still arrive later.
func (w *model) breakLink(node int, silent bool) {
	w.seen["broken"]++
	var out []op
	if silent {
		for s := range w.executors[node] {
			w.wire[node] = append(w.executors[node][s].inbox, w.wire[node]...)
			w.executors[node][s].inbox = nil
		}
		for _, c := range w.wire[node] {
			c.refused = true // rejected if it arrives later
			if c.link != w.links[node] {
				continue // the requests were given up earlier
			}
			out = append(out, op{copyOf: c, result: request.Result{Err: request.ErrMayStillApply}})
		}
		w.late[node], w.wire[node] = w.wire[node], nil
	}
	for _, c := range w.wire[node] {
		err := request.ErrOutcomeUnknown
		if w.rng.IntN(2) == 0 {
			err = request.ErrUnreachable
		}
		out = append(out, op{copyOf: c, result: request.Result{Err: err}})
	}
	w.wire[node] = nil
	unknown := request.Result{Err: request.ErrOutcomeUnknown}
	for _, o := range w.backs[node] {
		if o.link == w.links[node] {
			o.lose()
			out = append(out, op{copyOf: o.copyOf, result: unknown})
		}
	}
	w.backs[node] = nil
	for s := range w.executors[node] {
		l := &w.executors[node][s]
		for _, c := range l.inbox {
			if c.link != w.links[node] {
				continue
			}
			out = append(out, op{copyOf: c, result: unknown})
		}
		l.inbox = nil
		for _, o := range l.proposed {
			if o.link == w.links[node] {
				o.lose()
				out = append(out, op{copyOf: o.copyOf, result: unknown})
			}
		}
	}
	w.links[node]++
	w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	for _, o := range out {
		lost := &w.lost[node][o.req.Shard]
		*lost = max(*lost, o.req.Route.Round)
	}
	for _, o := range out {
		w.complete(o.asked, o.result)
	}
}

// tell makes the node learn of a leader: the current leader, an old leader
// or none.
func (w *model) tell(shard int, quorum bool) {
	l := lead{quorum: quorum, candidates: []sharding.NodeID{nodeName(1), nodeName(2)}}
	if at := w.leader[shard]; at >= 0 {
		l.to = target{node: nodeName(at), self: at == 0}
	}
	f := &w.routes[shard]
	f.updateLead(l)
	w.answers(f)
}

// check compares the answers that callers got with the commands that took
// effect.
func (w *model) check() error {
	if w.fault != nil {
		return w.fault
	}
	type way struct {
		stream int
		entity sharding.EntityID
	}
	last := map[way]*asked{}
	for _, q := range w.all {
		name := fmt.Sprintf("command %d of stream %d to %v", q.index, q.stream, q.req.Entity)
		if q.finished != 1 {
			return fmt.Errorf("%s is completed %d times", name, q.finished)
		}
		err := q.result.Err
		switch {
		case err == nil:
			w.seen["ok"]++
			if q.result.Duplicate {
				w.seen["duplicate"]++
			}
			if q.executed == 0 {
				return fmt.Errorf("%s succeeded and took no effect", name)
			}
		case errors.Is(err, request.ErrOutcomeUnknown):
			w.seen["unknown"]++
		default:
			w.seen[kindOf(err)]++
			if q.executed > 0 {
				return fmt.Errorf("%s took effect and failed: %v", name, err)
			}
		}
		if q.executed == 0 {
			continue
		}
		k := way{q.stream, q.req.Entity}
		if before := last[k]; before != nil && !before.refused && !(before.unconfirmed && q.unheard) && before.executed > q.executed {
			return fmt.Errorf("%s was decided at %d, before number %d at %d", name, q.executed, before.index, before.executed)
		}
		last[k] = q
	}
	for s := range w.routes {
		if f := &w.routes[s]; f.out != 0 || f.held.len() != 0 || len(f.back) != 0 || f.held.bytes != 0 || f.limits.total.used.Load() != 0 {
			return fmt.Errorf("shard %d holds %d, has %d out, accounts %d bytes", s, f.held.len(), f.out, f.held.bytes)
		}
	}
	return nil
}

func kindOf(err error) string {
	var rejected *request.RejectedError
	switch {
	case errors.As(err, &rejected):
		return "rejected"
	case errors.Is(err, request.ErrBusy):
		return "busy"
	case errors.Is(err, request.ErrDeadline):
		return "deadline"
	}
	return "unavailable"
}
