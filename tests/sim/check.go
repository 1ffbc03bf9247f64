package sim

import (
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// shardOf distributes the entities over the shards.
func (w *World) shardOf(entity string) sharding.ShardID {
	return w.shards[int(entity[1]-'0')%len(w.shards)]
}

// quiet is the number of steps within which the cluster must recover after all
// faults have ended. It allows for several elections of 10 to 20 ticks of 4
// steps each.
const quiet = 4000

// heal ends all faults and waits until every operation is finished, every shard
// has accepted a new command, and every replica has applied the same entries.
func (w *World) heal() {
	w.healing = true
	w.note("heal")
	clear(w.cut)
	for _, n := range w.nodes {
		n.paused, n.stalled, n.slow = 0, 0, 4
		n.disk.CutAfter(1 << 30)
		if !n.up {
			n.restart()
		}
	}
	if w.meta != nil {
		w.pardon()
		w.recoordinate()
	}
	probes := w.probes()
	for deadline := w.step + quiet; w.step < deadline && w.first == nil; w.step++ {
		for _, n := range w.nodes {
			if !n.up {
				n.restart() // the process has only now noticed that its power failed
			}
		}
		w.pass()
		if len(probes) > 0 && probes[0].op == nil && probes[0].number == 0 {
			for _, c := range probes {
				c.begin()
			}
			w.clients = append(w.clients, probes...)
		}
		if w.settled() {
			return
		}
	}
	if w.first == nil {
		w.fail("liveness: not well %d steps after the last fault: %s", quiet, w.describe())
	}
}

// probes returns clients that each send one command, retried until it succeeds,
// so that every shard gets a command.
func (w *World) probes() (out []*client) {
	for range w.entity {
		out = append(out, &client{w: w, id: 1000 + len(out), patience: 80})
	}
	return out
}

func (c *client) begin() {
	names := sorted(c.w.entity)
	name := names[c.id-1000]
	c.number++
	c.op = &operation{entity: name, id: journal.CommandID(fmt.Sprintf("probe%d", c.id)), must: true, floor: c.w.entity[name].known}
}

// settled reports whether all clients are done and all replicas agree.
func (w *World) settled() bool {
	for _, c := range w.clients {
		if c.op != nil {
			return false
		}
	}
	if w.clients[len(w.clients)-1].number == 0 || len(w.shipping) > 0 {
		return false
	}
	if w.meta != nil && !w.inPlace() || !w.messages.delivered() {
		return false
	}
	for _, s := range w.shards {
		for i, n := range w.nodes {
			if !n.up || w.outside(s, i) {
				continue
			}
			if n.machine.shards[s].index != uint64(len(w.log[s])) || len(n.machine.queue)+len(n.events) > 0 {
				return false
			}
		}
	}
	return true
}

// outside reports whether a node has no replica that became a member of the
// shard.
func (w *World) outside(s sharding.ShardID, node int) bool {
	if w.meta != nil {
		return w.replica(s, node) == 0
	}
	return node > 0 && w.profile.members > 0 && !w.joined[s]
}

func (w *World) describe() string {
	text := ""
	for _, s := range w.shards {
		for _, n := range w.nodes {
			st, _ := n.driver.Core().Status(s)
			text += fmt.Sprintf("\n  shard %d node %d up %v: applied %d of %d, %+v", s, n.id, n.up, n.machine.shards[s].index, len(w.log[s]), st)
		}
	}
	for _, n := range w.nodes {
		text += fmt.Sprintf("\n  node %d serves revision %d of %d", n.id, n.serves, w.bound)
	}
	if w.messages != nil {
		text += w.messages.describe()
	}
	if w.meta != nil {
		text += fmt.Sprintf("\n  members %+v\n  placements %+v", w.meta.state.View().Members(), w.meta.state.View().Placements())
	}
	for _, c := range w.clients {
		if c.op != nil {
			text += fmt.Sprintf("\n  client %d wants %+v", c.id, *c.op)
		}
	}
	return text
}

// verify checks the final state of every replica.
func (w *World) verify() {
	w.messages.verify()
	for _, n := range w.nodes {
		if n.machine.pins > 0 {
			w.fail("node %d holds %d states that nobody sends", n.id, n.machine.pins)
		}
	}
	for _, s := range w.shards {
		for i, n := range w.nodes {
			if !w.outside(s, i) {
				w.verifyReplica(n, s)
			}
		}
	}
}

func (w *World) verifyReplica(n *node, s sharding.ShardID) {
	st := n.machine.shards[s]
	for i, c := range st.log {
		if o := w.log[s][i]; o.Term != c.Term || string(o.Data) != string(c.Data) {
			w.fail("I8: node %d shard %d differs at entry %d", n.id, s, c.Index)
		}
	}
	for _, name := range sorted(w.entity) {
		if w.shardOf(name) == s {
			e := st.entities[name]
			if e == nil {
				e = &entity{}
			}
			w.verifyEntity(n, name, e, w.entity[name])
			if n.machine.product != nil {
				n.machine.product.verify(n, s, name, e)
			}
			if w.messages != nil {
				w.messages.verifyHistory(n.machine.product.machine, s, name, e)
			}
		}
	}
}

// verifyEntity compares an entity's records with the answers that clients
// received.
func (w *World) verifyEntity(n *node, name string, e *entity, h *history) {
	at := map[journal.CommandID]journal.Sequence{}
	term := sharding.Term(0)
	for i, r := range e.records {
		if _, twice := at[r.id]; twice {
			w.fail("I3: node %d %s has command %s twice", n.id, name, r.id)
		}
		at[r.id] = r.sequence
		if r.sequence != journal.Sequence(i+1) {
			w.fail("I4: node %d %s has sequence %d in place %d", n.id, name, r.sequence, i+1)
		}
		if r.term != r.entry {
			w.fail("I1: node %d %s: a writer of term %d wrote in term %d", n.id, name, r.term, r.entry)
		}
		if r.term < term {
			w.fail("I1: node %d %s goes back to term %d from %d", n.id, name, r.term, term)
		}
		term = r.term
	}
	for _, id := range h.order {
		if at[id] != h.acked[id] {
			w.fail("I2: node %d %s: %s was acknowledged at %d and is at %d", n.id, name, id, h.acked[id], at[id])
		}
	}
	for _, id := range sorted(h.failed) {
		if at[id] != 0 {
			w.fail("I7: node %d %s: %s failed for certain and is at %d", n.id, name, id, at[id])
		}
	}
	for _, r := range h.reads {
		if int(r.sequence) > len(e.records) || r.sequence > 0 && e.records[r.sequence-1].hash != r.hash {
			w.fail("I6: node %d: a read of %s gave a state at %d that it never had", n.id, name, r.sequence)
		}
	}
}
