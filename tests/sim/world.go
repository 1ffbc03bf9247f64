package sim

import (
	"bytes"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"math/rand/v2"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
)

// World is one run of the simulation. Only one goroutine may use it.
//
// Time is a number of steps. In each step, arrived frames and snapshots are
// delivered, every node makes one pass of its loop, in random order, and every
// client acts. A run has four phases: random faults for a number of steps; then
// heal ends them and waits until all operations are finished and all replicas
// agree; then calm checks sleeping groups, with bounds on the time of each
// reaction; and finally verify compares all replicas with each other and with
// the answers that clients received.
//
// A run must be a function of its seed, so that a failure can be repeated. All
// randomness comes from rng or from sources derived from the seed, nothing reads
// the real time, and maps are iterated in sorted order if the order matters.
// Settings that were added later draw from sources of their own, because an
// additional draw from rng would change all existing seeds. note adds every
// event to a hash, which a test compares between two runs of the same seed.
type World struct {
	Seed uint64
	// Story receives a line for each event of the run, unless it is nil.
	Story   io.Writer
	rng     *rand.Rand
	profile profile
	step    int
	dir     string // directory of the stores; empty if there are none
	shards  []sharding.ShardID
	nodes   []*node
	clients []*client
	entity  map[string]*history

	flights  []flight
	meta     *registry // nil if placements are fixed
	messages *messages // nil if entities send no messages
	raftOnly bool      // raft handles every turn of every group
	liars    liars
	older    older
	hints    hints
	// shipping are the snapshots in flight.
	shipping []*shipment
	cut      map[[2]int]bool // links, by source and destination, that lose everything
	healing  bool
	bound    uint64 // newest revision of activations
	// joining are the shards that began with one voter and get the other voters
	// during the run.
	joining map[sharding.ShardID]bool
	joined  map[sharding.ShardID]bool

	leaders map[leadership]int
	log     map[sharding.ShardID][]journal.Committed
	asked   int // number of calls of ask
	first   error
	trace   hash.Hash64
	count   Counts
}

type leadership struct {
	shard sharding.ShardID
	term  sharding.Term
}

// flight is a frame in flight, or a heartbeat if frame is nil. turns is the
// number of turns of the sender's loop so far.
type flight struct {
	at       int
	from, to int
	frame    []byte
	turns    uint64
}

// Counts has the numbers of faults and events in a run. If a number is zero,
// the run did not test that case.
type Counts struct {
	Frames, Lost, Doubled                  int
	crashes, cuts, pauses, stalls          int
	silences, sleeps, wakes, steady        int
	leads, transfers, changes              int
	dropped, rejected                      int
	acked, reads, unknown, resent          int
	bindings                               int
	snapshots, refusals, resumed, installs int
	created, removed, wiped                int
	sends, dead, turned                    int
	strayed, repeated                      int
	fired, shortened                       int
	lies, caught, stands                   int
	back, found, hidden                    int
}

func (c *Counts) String() string {
	return fmt.Sprintf("frames %d lost %d doubled %d crashes %d partitions %d pauses %d stalls %d silences %d sleeps %d wakes %d steady %d transfers %d leaders %d members %d dropped %d rejected %d bindings %d acked %d reads %d unknown %d resent %d snapshots %d refused %d resumed %d installs %d created %d removed %d wiped %d sends %d dead %d turned %d strayed %d repeated %d fired %d shortened %d lies %d caught %d stands %d back %d found %d hidden %d",
		c.Frames, c.Lost, c.Doubled, c.crashes, c.cuts, c.pauses, c.stalls, c.silences, c.sleeps, c.wakes, c.steady, c.transfers, c.leads, c.changes, c.dropped, c.rejected, c.bindings, c.acked, c.reads, c.unknown, c.resent, c.snapshots, c.refusals, c.resumed, c.installs, c.created, c.removed, c.wiped, c.sends, c.dead, c.turned, c.strayed, c.repeated, c.fired, c.shortened, c.lies, c.caught, c.stands, c.back, c.found, c.hidden)
}

// profile describes the behavior of a seed's world.
type profile struct {
	nodes, shards, clients, entities, steps int
	segment                                 int64
	record, cutTicks                        int
	message, apply, uncommitted             uint64
	loss, double                            float64
	delay                                   int
	// Each of these events happens once in this many steps on average; 0 means
	// never.
	crash, partition, heal, pause, stall, transfer, members int
	// blind is the number of steps in which some nodes do not know where
	// replicas are.
	blind int
	// snapshots means that followers that fell behind get snapshots. retain and
	// retainTotal bound the bytes of log that are kept for followers when the log
	// is truncated.
	snapshots           bool
	retain, retainTotal int64
	// If moves is not 0, the metadata places and moves replicas, and an operator
	// requests an operation once in this many steps. away is the mean number of
	// steps for which a node stays down. A disk is lost once in wipe steps.
	moves, away, wipe int
	// calm is the length of a period in steps. The clients pause during every
	// second period; they never pause if calm is 0.
	calm int
}

func (w *World) choose() profile {
	r := w.rng
	pick := func(v ...int) int { return v[r.IntN(len(v))] }
	p := profile{
		nodes: pick(1, 3, 3, 3, 3, 5), shards: pick(1, 2, 3, 4), clients: pick(2, 4, 8), entities: pick(2, 5, 10), steps: 2500,
		segment: int64(pick(16<<10, 32<<10, 128<<10)), record: pick(400, 2000, 6000), cutTicks: pick(1, 5, 20),
		message: uint64(pick(1, 500, 4000)), apply: uint64(pick(1, 800, 10000)), uncommitted: uint64(pick(700, 8000)),
		loss: []float64{0, 0, 0.02, 0.1, 0.25}[r.IntN(5)], double: []float64{0, 0.02, 0.2}[r.IntN(3)], delay: pick(1, 3, 12),
		crash: pick(0, 100, 250, 600), partition: pick(0, 150, 400), heal: pick(60, 120, 400), pause: pick(0, 200, 500), stall: pick(0, 100, 300),
		transfer: pick(0, 100, 300), members: pick(0, 0, 40, 120),
		blind: pick(0, 0, 1500), calm: pick(0, 100, 300, 800),
	}
	return p
}

// chooseMore draws settings that were added later from a random source of its
// own, so that the original settings of a seed stay the same.
func (w *World) chooseMore() {
	r := rand.New(rand.NewPCG(w.Seed, 2))
	p := &w.profile
	p.snapshots = p.nodes > 1 && r.IntN(2) == 0
	p.retain = []int64{1, 1, 600, 5000}[r.IntN(4)]
	p.retainTotal = []int64{2000, 64 << 20}[r.IntN(2)]
	p.moves, p.away = []int{0, 0, 60, 250}[r.IntN(4)], []int{60, 300}[r.IntN(2)]
	if p.wipe = []int{0, 400}[r.IntN(2)]; p.moves > 0 {
		p.nodes, p.members, p.snapshots = 3+r.IntN(3), 0, true
	}
}

// New creates the world of a seed. A plain world omits the settings that were
// added later.
func New(seed uint64, plain bool) *World {
	w := &World{
		Seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), entity: map[string]*history{}, cut: map[[2]int]bool{},
		joining: map[sharding.ShardID]bool{}, joined: map[sharding.ShardID]bool{},
		leaders: map[leadership]int{}, log: map[sharding.ShardID][]journal.Committed{}, trace: fnv.New64a(),
	}
	w.profile = w.choose()
	if !plain {
		w.chooseMore()
	}
	p := &w.profile
	for s := range p.shards {
		w.shards = append(w.shards, sharding.ShardID(s+1))
		w.joining[sharding.ShardID(s+1)] = p.members > 0 && p.nodes > 1
	}
	if !plain {
		w.chooseMessages()
		w.chooseLies()
		w.chooseOlder()
	}
	for i := range p.nodes {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	if p.moves > 0 {
		w.found()
	}
	for i := range p.entities {
		w.entity[fmt.Sprintf("e%d", i)] = newHistory()
	}
	for i := range p.clients {
		w.clients = append(w.clients, &client{w: w, id: i, patience: 15 + w.rng.IntN(70), wander: []int{0, 10, 50}[w.rng.IntN(3)]})
	}
	return w
}

// UseRaftOnly lets raft handle every turn of every group, without the steady
// state.
func (w *World) UseRaftOnly() { w.raftOnly = true }

func (w *World) firstVoters(s sharding.ShardID) (ids []sharding.ReplicaID) {
	for i := range w.nodes {
		if i == 0 || w.profile.members == 0 {
			ids = append(ids, w.replica(s, i))
		}
	}
	return ids
}

// fail records the first violation, which ends the run.
func (w *World) fail(format string, args ...any) {
	if w.first == nil {
		w.first = fmt.Errorf("seed %d step %d: %s", w.Seed, w.step, fmt.Sprintf(format, args...))
	}
}

// note adds a line to the trace.
func (w *World) note(format string, args ...any) {
	fmt.Fprintf(w.trace, "%d ", w.step)
	fmt.Fprintf(w.trace, format, args...)
	w.trace.Write([]byte{'\n'})
	if w.Story != nil {
		fmt.Fprintf(w.Story, "%d ", w.step)
		fmt.Fprintf(w.Story, format+"\n", args...)
	}
}

// Trace returns the hash of everything that happened.
func (w *World) Trace() uint64 { return w.trace.Sum64() }

// Counts returns the counters of the run.
func (w *World) Counts() *Counts { return &w.count }

// Run runs the world to its end and returns the first violation.
func (w *World) Run() error {
	for _, n := range w.nodes {
		if err := n.start(); err != nil {
			w.fail("start: %v", err)
		}
	}
	for ; w.step < w.profile.steps && w.first == nil; w.step++ {
		w.faults()
		w.hint()
		w.pass()
	}
	if w.first == nil {
		w.heal()
	}
	if w.first == nil && len(w.nodes) > 1 {
		w.calm()
	}
	if w.first == nil {
		w.verify()
	}
	for _, n := range w.nodes {
		n.tally()
	}
	return w.first
}

// Close closes the stores.
func (w *World) Close() {
	for _, n := range w.nodes {
		if n.up {
			n.up = false
			n.machine.product.close(w)
		}
	}
}

// pass advances the world by one step.
func (w *World) pass() {
	w.deliver()
	w.carry()
	w.messages.carry()
	for _, i := range w.rng.Perm(len(w.nodes)) {
		w.nodes[i].run()
	}
	if w.meta != nil {
		w.govern()
	}
	for _, c := range w.clients {
		c.act()
	}
}

func (w *World) send(from, to int, frame []byte) {
	w.count.Frames++
	w.note("send %d %d", from, to)
	w.trace.Write(frame)
	if w.Story != nil {
		_ = wire.DecodeFrame(frame, func(m wire.Message) { fmt.Fprintf(w.Story, "  shard %d %v\n", m.Shard, m.Raft) })
	}
	w.fly(from, to, frame)
}

// fly puts a frame or a heartbeat on a link.
func (w *World) fly(from, to int, frame []byte) {
	copies := 1
	if w.cut[[2]int{from, to}] {
		w.count.Lost++
		return
	}
	if !w.healing {
		if w.rng.Float64() < w.profile.loss {
			w.count.Lost++
			return
		}
		if w.rng.Float64() < w.profile.double {
			w.count.Doubled++
			copies = 2
		}
	}
	delay := w.profile.delay
	if w.healing {
		delay = min(delay, 3)
	}
	for range copies {
		// Each copy gets its own bytes, because decoded entries point into the
		// frame.
		at := w.step + 1 + w.rng.IntN(delay)
		w.flights = append(w.flights, flight{at, from, to, bytes.Clone(frame), w.nodes[from].turns})
	}
}

// deliver delivers the frames that have arrived, in random order.
func (w *World) deliver() {
	var due []flight
	kept := w.flights[:0]
	for _, f := range w.flights {
		switch {
		case f.at > w.step:
			kept = append(kept, f)
		case w.cut[[2]int{f.from, f.to}]:
			w.count.Lost++
		default:
			due = append(due, f)
		}
	}
	w.flights = kept
	w.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	for _, f := range due {
		if n := w.nodes[f.to]; n.up {
			n.inbox = append(n.inbox, arrival{f.from, f.frame, f.turns})
		}
	}
}

// leads checks that a shard has at most one leader in a term.
func (w *World) leads(n *node, shard sharding.ShardID, term sharding.Term) {
	w.count.leads++
	key := leadership{shard, term}
	if other, ok := w.leaders[key]; ok && other != n.id {
		w.fail("I1: nodes %d and %d both lead shard %d in term %d", other, n.id, shard, term)
	}
	w.leaders[key] = n.id
}

// committed checks that all nodes apply the same entries.
func (w *World) committed(n *node, shard sharding.ShardID, c journal.Committed) {
	log := w.log[shard]
	if c.Index == uint64(len(log))+1 {
		w.log[shard] = append(log, c)
		w.note("commit %d %d %d %x", shard, c.Index, c.Term, c.Data)
		return
	}
	if c.Index > uint64(len(log)) {
		w.fail("I8: node %d applies entry %d of shard %d before anyone applied %d", n.id, c.Index, shard, len(log)+1)
		return
	}
	if o := log[c.Index-1]; o.Term != c.Term || string(o.Data) != string(c.Data) {
		w.fail("I8: node %d applies another entry %d of shard %d: term %d, before %d", n.id, c.Index, shard, c.Term, o.Term)
	}
}
