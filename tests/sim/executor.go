package sim

import (
	"encoding/binary"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// simExecutor is the executor of one shard on the node that leads it, and the shard's
// only writer. It runs commands on proposed states before they commit, and
// answers after the commit.
//
//	                                        no-op of the term applied, and the
//	                                        node serves the shard's activations
//	idle ─ LeaderChanged(self) ─▶ leading ────────────────────────────────────▶ active
//	  ▲──── LeaderChanged: the outcome of pending proposals becomes unknown ────────┘
type simExecutor struct {
	n     *node
	shard sharding.ShardID

	term    sharding.Term
	leading bool
	started bool // the no-op of the current term is applied
	active  bool
	// Commands run under revision bound of the activations, which is in the
	// shard's log. If a newer revision was proposed, asking is that revision and
	// asked the number of its proposal.
	bound, asking uint64
	asked         uint64
	// broken means that a proposal was dropped or rejected, so that proposals
	// based on it will be rejected.
	broken bool

	heads    map[string]head
	flight   map[journal.CommandID][]*call
	pending  map[uint64][]journal.CommandID
	batch    []*call // calls to be proposed in one entry
	size     int     // approximate bytes of the batch
	number   uint64
	inbox    map[route]receipt
	proposed map[uint64]*posting

	tokens map[uint64]*call // reads that are not confirmed yet
	reads  []confirmed      // confirmed reads that wait until their index is applied
}

type head struct {
	sequence journal.Sequence
	hash     journal.Hash
}

type confirmed struct {
	index uint64
	call  *call
}

func newLane(n *node, shard sharding.ShardID) *simExecutor {
	l := &simExecutor{n: n, shard: shard}
	l.reset()
	return l
}

func (l *simExecutor) reset() {
	l.started, l.active, l.broken, l.asked = false, false, false, 0
	l.heads = map[string]head{}
	l.flight = map[journal.CommandID][]*call{}
	l.pending = map[uint64][]journal.CommandID{}
	l.tokens = map[uint64]*call{}
	l.inbox, l.proposed = map[route]receipt{}, map[uint64]*posting{}
	l.batch, l.size, l.reads = nil, 0, nil
}

// leader handles a change of leadership. The outcome of everything pending
// becomes unknown.
func (l *simExecutor) leader(term sharding.Term, self bool) {
	l.abandon()
	l.term, l.leading = term, self
}

// abandon answers everything that waits. A command that was proposed may still
// commit.
func (l *simExecutor) abandon() {
	for _, number := range sorted(l.pending) {
		for _, id := range l.pending[number] {
			for _, c := range l.flight[id] {
				c.finish(unknown, head{})
			}
		}
	}
	for _, number := range sorted(l.proposed) {
		l.posted(number, request.ErrOutcomeUnknown)
	}
	l.refuseBatch()
	for _, token := range sorted(l.tokens) {
		l.tokens[token].finish(refused, head{})
	}
	for _, r := range l.reads {
		r.call.finish(refused, head{})
	}
	l.reset()
}

func (l *simExecutor) noop(term sharding.Term, bound uint64) {
	if l.leading && term == l.term {
		l.started, l.bound = true, bound
		l.activate()
	}
}

// activate makes the executor active once the no-op is applied and the node
// serves the revision in the shard's log.
func (l *simExecutor) activate() {
	l.active = l.active || l.started && l.n.serves >= l.bound
}

// bind proposes the revision that the node serves.
func (l *simExecutor) bind() {
	if l.asked != 0 {
		return
	}
	l.number++
	l.asked, l.asking = l.number, l.n.serves
	data := journal.AppendBindingsEntry(nil, l.term, l.number, l.asking)
	if err := l.n.driver.Core().Propose(l.shard, l.term, l.number, data); err != nil {
		l.asked = 0
	}
}

// handle accepts a call from a client.
func (l *simExecutor) handle(c *call) {
	switch {
	case !l.active || l.broken:
		c.finish(refused, head{})
	case c.read:
		l.number++
		l.tokens[l.number] = c
		if err := l.n.driver.Core().ReadIndex(l.shard, l.number); err != nil {
			delete(l.tokens, l.number)
			c.finish(refused, head{})
		}
	case l.n.serves > l.bound:
		l.bind()
		c.finish(refused, head{})
	default:
		l.command(c)
	}
}

func (l *simExecutor) command(c *call) {
	c.serves = l.n.serves
	if e := l.n.machine.shards[l.shard].entities[c.entity]; e != nil {
		if at, ok := e.byID[c.id]; ok {
			c.finish(done, head{sequence: at})
			return
		}
	}
	if waiters, ok := l.flight[c.key]; ok {
		l.flight[c.key] = append(waiters, c)
		return
	}
	if l.n.w.messages != nil && !l.room(c, 1) {
		c.finish(refused, head{})
		return
	}
	l.enqueue(c)
}

// batchBytes is the approximate number of payload bytes in one entry.
const batchBytes = 800

// enqueue adds a call to the batch. It returns false if there is no room.
func (l *simExecutor) enqueue(c *call) bool {
	for _, o := range l.batch {
		if o.entity == c.entity && l.n.stalled > l.n.w.step {
			c.finish(refused, head{}) // the mailbox is full
			return false
		}
		if o.entity == c.entity || l.n.w.messages != nil && l.size > batchBytes {
			l.propose()
			break
		}
	}
	l.flight[c.key] = []*call{c}
	l.batch = append(l.batch, c)
	l.size += 200 + len(c.payload)
	l.size += len(c.timers.ops) + len(c.timers.schedules)
	for i := range c.sends {
		l.size += 60 + len(c.sends[i].Payload)
	}
	return true
}

// propose proposes the batch as one entry.
func (l *simExecutor) propose() {
	if len(l.batch) == 0 {
		return
	}
	l.number++
	data := journal.AppendPacedHeader(nil, sharding.MaxVersion, journal.EntryRecords, l.term, l.number)
	var ids []journal.CommandID
	for _, c := range l.batch {
		data = l.append(data, c)
		ids = append(ids, c.key)
	}
	l.pending[l.number] = ids
	l.batch, l.size = nil, 0
	if err := l.n.driver.Core().Propose(l.shard, l.term, l.number, data); err != nil {
		l.dropped(l.term, l.number)
	}
}

func (l *simExecutor) append(data []byte, c *call) []byte {
	h, ok := l.heads[c.entity]
	if e := l.n.machine.shards[l.shard].entities[c.entity]; !ok && e != nil {
		h = head{e.sequence, e.hash}
	}
	r := journal.Record{
		Entity: sharding.EntityID{Type: "chain", ID: c.entity}, Term: l.term, RecordedAt: int64(l.n.w.step),
		Expected: h.sequence, Prev: h.hash, CommandID: c.id, Module: digest(c.serves),
		Events: []journal.Event{{Type: "added", Payload: c.payload}},
	}
	l.sections(&r, c)
	var chain journal.Chain
	l.heads[c.entity] = head{r.Last(), chain.After(&r)}
	return journal.AppendRecord(data, &r)
}

// sections adds the sections for messages and timers to a record.
func (l *simExecutor) sections(r *journal.Record, c *call) {
	add := func(kind journal.SectionKind, data []byte) {
		r.Sections = append(r.Sections, journal.Section{Kind: kind, Data: data})
	}
	var tokens []byte
	if c.send != nil {
		source := c.send.source()
		add(journal.SectionSource, journal.AppendMessageSource(nil, &source))
	}
	if c.timer != nil {
		add(journal.SectionSource, journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte(c.timer.Name), Due: c.timer.Due}))
	}
	if len(c.timers.ops) > 0 {
		add(journal.SectionTimers, c.timers.ops)
	}
	if len(c.sends) > 0 {
		var data []byte
		for i := range c.sends {
			data = journal.AppendMessageOp(data, &c.sends[i])
			if token := c.sends[i].Token; len(token) > 0 {
				tokens = journal.AppendTokenOp(tokens, journal.TokenOp{Item: uint16(i), Token: token})
			}
		}
		add(journal.SectionMessages, data)
	}
	if c.rejected {
		r.Events = nil
	}
	if c.rejected && len(c.sends) == 0 {
		add(journal.SectionRefusal, journal.AppendRefusal(nil, &journal.Refusal{Code: []byte("no"), Command: []byte(c.send.command)}))
	}
	if len(c.timers.schedules) > 0 {
		add(journal.SectionSchedules, c.timers.schedules)
	}
	if len(tokens) > 0 {
		add(journal.SectionTokens, tokens)
	}
}

// digest returns the module digest that stands for a revision.
func digest(bound uint64) (d journal.Digest) {
	binary.BigEndian.PutUint64(d[:], bound)
	return d
}

// decision handles the apply result of an entry, which the state machine has
// already applied.
func (l *simExecutor) decision(fence sharding.Term, number uint64, err error) {
	if l.leading && fence == l.term && l.posted(number, err) {
		return
	}
	if l.leading && fence == l.term && number == l.asked {
		if l.asked = 0; err == nil {
			l.bound = max(l.bound, l.asking)
		}
		return
	}
	ids, ok := l.pending[number]
	if !ok || fence != l.term || !l.leading {
		return
	}
	delete(l.pending, number)
	for _, id := range ids {
		for _, c := range l.flight[id] {
			if err != nil {
				c.finish(refused, head{})
				continue
			}
			e := l.n.machine.shards[l.shard].entities[c.entity]
			if e == nil { // the replica has been removed since
				c.finish(unknown, head{})
				continue
			}
			c.finish(done, head{sequence: e.byID[c.id], hash: e.hash})
		}
		delete(l.flight, id)
	}
	if err != nil {
		l.broken = true
		l.n.w.count.rejected++
	}
	l.mend()
}

// dropped handles a proposal that will never commit.
func (l *simExecutor) dropped(fence sharding.Term, number uint64) {
	if fence == l.term && number == l.asked {
		l.asked = 0
		return
	}
	if fence == l.term && l.posted(number, request.ErrNotApplied) {
		return
	}
	ids, ok := l.pending[number]
	if !ok || fence != l.term {
		return
	}
	delete(l.pending, number)
	for _, id := range ids {
		for _, c := range l.flight[id] {
			c.finish(refused, head{})
		}
		delete(l.flight, id)
	}
	l.broken = true
	l.n.w.count.dropped++
	l.mend()
}

// mend restarts a broken executor from the applied state once nothing is
// pending.
func (l *simExecutor) mend() {
	if !l.broken || len(l.pending) > 0 {
		return
	}
	l.refuseBatch()
	l.heads, l.inbox = map[string]head{}, map[route]receipt{}
	l.broken = false
}

// refuseBatch rejects the calls that were not proposed.
func (l *simExecutor) refuseBatch() {
	for _, b := range l.batch {
		for _, c := range l.flight[b.key] {
			c.finish(refused, head{})
		}
		delete(l.flight, b.key)
	}
	l.batch, l.size = nil, 0
}

func (l *simExecutor) confirmed(token, index uint64) {
	if c := l.tokens[token]; c != nil {
		delete(l.tokens, token)
		l.reads = append(l.reads, confirmed{index, c})
	}
}

func (l *simExecutor) unconfirmed(token uint64) {
	if c := l.tokens[token]; c != nil {
		delete(l.tokens, token)
		c.finish(refused, head{})
	}
}

// answer finishes the reads whose index is applied.
func (l *simExecutor) answer() {
	s := l.n.machine.shards[l.shard]
	kept := l.reads[:0]
	for _, r := range l.reads {
		if r.index > s.index {
			kept = append(kept, r)
			continue
		}
		var h head
		if e := s.entities[r.call.entity]; e != nil {
			h = head{e.sequence, e.hash}
		}
		r.call.finish(done, h)
	}
	l.reads = kept
}
