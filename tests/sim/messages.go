package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hostd/hostd/host/deliver"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// messages is the state of messages in a world whose entities send them. Its
// nodes run the product's state machine, on in-memory stores, and its outbox
// dispatcher in addition to the model.
type messages struct {
	w      *World
	ledger *ledger
	// often is the rate of sending: one in this many commands sends messages.
	often int
	// Limits: pending messages of an entity and of a shard, dead letters of a
	// shard, and the options of the dispatchers.
	entitySends, shardSends, deadLetters int
	pump                                 deliver.Options
	parcels                              []parcel
	firsts                               map[string]journal.Sequence // first event of each entity, which must be the same on all replicas at the end
	links                                map[[2]int]int              // arrival time of the last parcel of a link
	asking                               int                         // number of messages so far that expect an answer
}

// parcel is a message, or the answer of the executor that received it, in
// flight between two nodes.
type parcel struct {
	at, from, to int
	number       uint64 // number of the trip
	start        int    // number of the process that sent the parcel
	d            *delivery
	err          error
}

// trip is a request in a node's shard router.
type trip struct {
	number  uint64
	request *request.Request
	until   int
}

func chainEntity(id string) sharding.EntityID { return sharding.EntityID{Type: "chain", ID: id} }

// chooseMessages draws whether the entities of a world send messages, and how.
func (w *World) chooseMessages() {
	r := rand.New(rand.NewPCG(w.Seed, 3))
	pick := func(v ...int) int { return v[r.IntN(len(v))] }
	if r.IntN(5) < 2 {
		return
	}
	w.messages = &messages{
		w: w, ledger: newLedger(w), often: pick(1, 2, 4), entitySends: pick(6, 30), shardSends: pick(20, 100), deadLetters: pick(3, 50),
		links: map[[2]int]int{}, firsts: map[string]journal.Sequence{},
		pump: deliver.Options{
			Stop: eventlog.ErrStopReading, ChannelWindow: pick(1, 4, 16), ShardHeld: pick(4, 60), HeldBytes: pick(3000, 40000), Channels: pick(3, 40), InFlight: pick(3, 40),
			Attempts: 3, MinWait: 20 * time.Millisecond, MaxWait: time.Second, FaultWait: 100 * time.Millisecond,
		},
	}
}

// anyone draws the destination of a message. A few entities get most messages,
// and some destinations do not exist.
func (m *messages) anyone() sharding.EntityID {
	names := sorted(m.w.entity)
	e := chainEntity(names[m.w.rng.IntN(1+m.w.rng.IntN(len(names)))])
	if m.w.rng.IntN(12) == 0 {
		e.Type = "ghost"
	}
	return e
}

func (m *messages) op(to sharding.EntityID, command string) journal.MessageOp {
	op := journal.MessageOp{Type: []byte(to.Type), ID: []byte(to.ID), Command: []byte(command), Payload: make([]byte, m.w.rng.IntN(60))}
	if m.w.rng.IntN(3) == 0 {
		op.OnReply, op.OnReject = []byte("got-reply"), []byte("got-refusal")
		if m.asking++; m.asking%3 > 0 {
			op.Token = fmt.Appendf(nil, "token %d", m.asking)
		}
	}
	return op
}

// sends draws the messages of a command.
func (m *messages) sends() (ops []journal.MessageOp) {
	if m == nil || !m.w.chance(m.often) {
		return nil
	}
	for range 1 + m.w.rng.IntN(4) {
		command := []string{"note", "note", "note", "forward", "refuse", "trap"}[m.w.rng.IntN(6)]
		ops = append(ops, m.op(m.anyone(), command))
	}
	return ops
}

// startPump starts the outbox dispatcher of a new process.
func (n *node) startPump() {
	if n.w.messages == nil {
		return
	}
	opts := n.w.messages.pump
	opts.Shards, opts.Outboxes, opts.Router, opts.Types = n, n.machine.product.machine, n, n
	n.pump, n.trips, n.parcels = deliver.NewCore(opts), nil, nil
}

// runPump runs the dispatcher's part of a pass.
func (n *node) runPump() {
	if n.pump == nil || n.w.rng.IntN(4) == 0 {
		return
	}
	if n.stalled <= n.w.step {
		due := n.parcels
		n.parcels = nil
		for _, p := range due {
			n.receive(p)
		}
	}
	for len(n.trips) > 0 && n.trips[0].until < n.w.step {
		n.home(n.trips[0].number, request.ErrOutcomeUnknown)
	}
	n.pump.Step(time.Unix(0, int64(n.w.step)*int64(20*time.Millisecond)))
}

// receive handles a parcel that has arrived.
func (n *node) receive(p parcel) {
	if p.d == nil {
		if p.start == n.process {
			n.home(p.number, p.err)
		}
		return
	}
	d := *p.d // copied, because the parcel may arrive twice
	d.answer = func(err error) {
		if n.up {
			n.w.messages.fly(parcel{from: n.id, to: p.from, number: p.number, start: p.start, err: err})
		}
	}
	n.executors[n.w.shardOf(d.to.ID)].deliver(&d)
}

// home ends a trip. It ignores a trip that has already ended.
func (n *node) home(number uint64, err error) {
	i := slices.IndexFunc(n.trips, func(t trip) bool { return t.number == number })
	if i < 0 {
		return
	}
	r := n.trips[i].request
	n.trips = slices.Delete(n.trips, i, i+1)
	r.Result = request.Result{Err: err}
	r.Done.Complete(r)
}

// Submit implements deliver.Router. A request goes to a random node, which may
// be the leader, and its outcome comes back unless it is lost.
func (n *node) Submit(requests []*request.Request) {
	w := n.w
	for _, r := range requests {
		n.number++
		n.trips = append(n.trips, trip{n.number, r, w.step + 60})
		to := w.rng.IntN(len(w.nodes))
		if lead := w.leader(w.shardOf(r.Entity.ID)); lead != nil && w.rng.IntN(8) > 0 {
			to = lead.id
		}
		w.messages.fly(parcel{from: n.id, to: to, number: n.number, start: n.process, d: &delivery{Delivery: *r.Delivery, to: r.Entity, command: r.Name}})
	}
}

// fly sends a parcel. Most parcels of a link stay in order.
func (m *messages) fly(p parcel) {
	w := m.w
	copies := 1
	if p.from != p.to {
		if w.cut[[2]int{p.from, p.to}] || !w.healing && w.rng.Float64() < w.profile.loss {
			w.count.strayed++
			return
		}
		if !w.healing && w.rng.Float64() < w.profile.double {
			w.count.repeated++
			copies = 2
		}
	}
	for range copies {
		p.at = w.step + 1 + w.rng.IntN(w.profile.delay)
		if link := [2]int{p.from, p.to}; w.rng.IntN(10) > 0 {
			p.at = max(p.at, m.links[link])
			m.links[link] = p.at
		}
		m.parcels = append(m.parcels, p)
	}
}

// carry delivers the parcels that have arrived. It also discards dead letters,
// as an operator would.
func (m *messages) carry() {
	if m == nil {
		return
	}
	w := m.w
	kept := m.parcels[:0]
	for _, p := range m.parcels {
		switch n := w.nodes[p.to]; {
		case p.at > w.step:
			kept = append(kept, p)
		case w.cut[[2]int{p.from, p.to}] || !n.up:
			w.count.strayed++
		default:
			n.parcels = append(n.parcels, p)
		}
	}
	m.parcels = kept
	for _, s := range w.shards {
		if len(m.ledger.shards[s].deadLetters) >= m.deadLetters && w.rng.IntN(20) == 0 || !w.healing && w.chance(400) {
			m.discard(s)
		}
	}
}

// discard discards a dead letter, as an operator would.
func (m *messages) discard(s sharding.ShardID) {
	n := m.w.leader(s)
	if n == nil || n.executors[s].broken {
		return
	}
	if id, ok := m.oldest(s); ok {
		n.executors[s].proposeSteps(&posting{finish: func(error) {}}, journal.OutboxOp{Kind: journal.OutboxDiscarded, ID: id})
	}
}

// oldest returns a shard's oldest dead letter, if there is one.
func (m *messages) oldest(s sharding.ShardID) (first journal.ItemID, ok bool) {
	for id := range m.ledger.shards[s].deadLetters {
		if !ok || id.Less(first) {
			first, ok = id, true
		}
	}
	return first, ok
}

// Leads implements deliver.Shards.
func (n *node) Leads() (led []deliver.Lead) {
	for _, s := range n.w.shards {
		if l := n.executors[s]; l.active {
			led = append(led, deliver.Lead{Shard: s, Term: l.term})
		}
	}
	return led
}

// LeadsChanged implements deliver.Shards. Nothing in the simulation uses it.
func (n *node) LeadsChanged() <-chan struct{} { return nil }

// Propose implements deliver.Shards.
func (n *node) Propose(s sharding.ShardID, r *request.Request) { n.executors[s].acknowledge(r) }

// IsServed implements deliver.Types.
func (n *node) IsServed(entityType string) bool { return entityType == "chain" }

// IsUnknown implements deliver.Types.
func (n *node) IsUnknown(entityType string) bool { return !n.IsServed(entityType) }

// delivered reports whether every message has ended and nothing about messages
// is in flight.
func (m *messages) delivered() bool {
	if m == nil {
		return true
	}
	if m.ledger.waiting() > 0 || m.ledger.set() > 0 || len(m.parcels) > 0 {
		return false
	}
	for _, n := range m.w.nodes {
		if n.up && (len(n.trips) > 0 || !n.pump.Idle()) {
			return false
		}
	}
	return true
}

func (m *messages) describe() (text string) {
	text = fmt.Sprintf("\n  %d sends on their way, %d timers, %d parcels", m.ledger.waiting(), m.ledger.set(), len(m.parcels))
	for _, s := range m.w.shards {
		a := m.ledger.shards[s]
		text += fmt.Sprintf("\n  shard %d has %d sends and %d dead letters", s, len(a.outbox), len(a.deadLetters))
	}
	for _, n := range m.w.nodes {
		if n.up {
			text += fmt.Sprintf("\n  node %d: %d trips, %d parcels, idle %v, %+v", n.id, len(n.trips), len(n.parcels), n.pump.Idle(), n.pump.Stats())
		}
	}
	return text
}

// verify compares the messages of all replicas at the end.
func (m *messages) verify() {
	if m == nil {
		return
	}
	w := m.w
	for name, f := range m.ledger.fates {
		switch {
		case f.how == "":
			w.fail("I11: nothing has become of %s", name)
		case f.wants && f.answers != 1:
			w.fail("I11: %s was %s and is answered %d times", name, f.how, f.answers)
		}
		w.count.sends++
		switch f.how {
		case "dead":
			w.count.dead++
		case "refused", "given up":
			w.count.turned++
		}
	}
	for _, s := range w.shards {
		for i, n := range w.nodes {
			if !w.outside(s, i) {
				if err := m.verifyReplica(n.machine.product.machine, s); err != nil {
					w.fail("I5: node %d shard %d: %v", i, s, err)
				}
			}
		}
	}
}

func (m *messages) verifyReplica(machine *eventlog.Machine, s sharding.ShardID) error {
	a := m.ledger.shards[s]
	if has := machine.MessageTotals(s); has.Messages != 0 || has.MessageBytes != 0 || int(has.DeadLetters) != len(a.deadLetters) {
		return fmt.Errorf("it has %+v of sends, and should have %d dead letters", has, len(a.deadLetters))
	}
	err := machine.Outbox(context.Background(), s, journal.ItemID{}, func(s *journal.Message) error { return fmt.Errorf("%v is still on its way", s.ID) })
	if err != nil {
		return err
	}
	if due, _, err := machine.DueTimers(context.Background(), s, math.MaxInt64-1, 1, func(sharding.EntityID, string, int64) bool { return false }); err != nil || len(due) > 0 {
		return fmt.Errorf("timers are set: %+v %w", due, err)
	}
	n := 0
	err = machine.DeadLetters(context.Background(), s, journal.ItemID{}, func(l *journal.DeadLetter) error {
		name, ok := a.deadLetters[l.ID]
		if n++; !ok || l.Source != name.from || l.Destination != name.to || l.Number != 0 && l.Number != name.number || l.Code == "" {
			return fmt.Errorf("dead letter %+v, and should be of %v", l, name)
		}
		return nil
	})
	if err == nil && n != len(a.deadLetters) {
		err = fmt.Errorf("%d dead letters are found of %d", n, len(a.deadLetters))
	}
	for k, number := range a.received {
		if has, readErr := machine.Received(s, k.to, k.from); err == nil && (readErr != nil || has != number) {
			err = fmt.Errorf("%s has %d of %s and should have %d: %w", k.to, has, k.from, number, readErr)
		}
	}
	for k, count := range a.counts {
		if has, readErr := machine.ChannelCounters(s, k.from, k.to); err == nil && (readErr != nil || has != count) {
			err = fmt.Errorf("%v is counted for %v and should be %v: %w", has, k, count, readErr)
		}
	}
	return err
}
