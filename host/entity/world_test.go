package entity

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// flight is a proposed entry without an outcome.
type flight struct {
	term     sharding.Term
	proposal uint64
	data     []byte
}

// world is the journal, the loader and the clients around a core, all driven
// from one goroutine by one seed. It simulates the log of one shard.
type world struct {
	t    *testing.T
	rnd  *rand.Rand
	core *core
	typ  *Type // the activation that the node serves now
	now  time.Time
	open int    // number of open guest instances
	who  []byte // the principal of the last call

	clocks
	retries retries

	newest   uint64 // highest revision served by any node
	revision uint64 // revision in the log

	term    sharding.Term
	flights []flight
	rounds  []uint64
	reads   bool        // whether ReadIndex rounds are confirmed
	chunks  []coreEvent // results of pending reads of histories

	log        []journal.Record // applied records, in order
	callers    []*principal.Principal
	heads      map[string]*head
	snaps      map[string][]journal.Snapshot
	since      int // number of reads that start after the position of a snapshot
	timers     map[timerKey]journal.Timer
	scans      []*timers.Scan
	existings  []*alwaysOnScan
	poison     string // the entity that cannot be loaded
	retain     uint64
	cuts       map[string]journal.Sequence // last sequence compacted away, by entity
	meanwhile  func()                      // called after snapshots were read
	autostart  bool                        // the type is always-on
	singleton  bool
	transient  bool
	workflow   bool // the type is a workflow
	messages   messages
	lost       bool // some proposal was lost
	fired      int
	ticks      ticks
	hush       bool        // no schedule becomes due any more
	records    int         // records read by the last load
	alarm      *abi.Timer  // timer that the command "alarm" sets
	schedules  []abi.Timer // timers that the command "schedule" sets
	raw        []byte      // output of the command "raw", after it has evolved
	tooLarge   int64       // smallest sum whose state is too large for a snapshot; 0 for none
	durable    bool        // the type is durable
	fuel       uint64
	deleted    int
	busy       bool
	bounded    bool // the type has instances of its own
	long       bool // every guest call runs long
	often      int  // often+1 of five commands are retries
	brisk      bool // nothing but the log is slow, so much is in flight
	prompt     bool // no guest call runs long or faults at random
	number     int  // number of commands sent by tell
	noSnapshot bool
	refusesEnd bool // modules reject the command that ends a run
	sizes      sizes
	refuse     bool         // the next proposal is rejected
	bad        int          // if prompt is set: 0 refuses snapshots, 1 traps on them
	away       []*guestCall // detached guest calls
	electing   bool
	deposed    bool // another node leads without this node's knowledge
	foreign    int  // records written by other leaders
	problems   []string

	sent map[journal.CommandID]*sent
	ids  []journal.CommandID // the keys of sent
	done int
}

type head struct {
	sequence  journal.Sequence
	hash      journal.Hash
	sum       int64
	deleted   bool
	exists    bool
	stopped   bool
	deletions int // number of deletions
}

// sent is a command id with all its answers.
type sent struct {
	kind                  request.Kind
	entity, name, payload string
	server                bool // the server made the id
	acked                 *request.Result
	unknown               bool // an attempt may have taken effect
	at                    time.Duration
}

const worldShard = sharding.ShardID(1)

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_700_000_000, 0),
		heads: map[string]*head{}, snaps: map[string][]journal.Snapshot{}, timers: map[timerKey]journal.Timer{}, sent: map[journal.CommandID]*sent{}, reads: true,
	}
	w.durable, w.autostart = seed%5 == 4, seed%2 == 0
	w.messages = newMessages()
	w.pace, w.brisk = 1, seed%4 == 3
	if w.brisk {
		w.often = 1
	}
	w.serve(0)
	w.core = newCore(Options{
		Journal: w, Histories: w, Types: w, Now: func() time.Time { return w.now },
		Activations: w, Existing: w, AlwaysOnRate: 1000,
		InstanceBytes: 3, ExecutorBytes: int64(4 + 1000*(seed%3)), WindowBytes: int64(1 + seed%4<<20), PassivateAfter: time.Duration(seed%2) * 40 * time.Millisecond, HibernateAfter: time.Duration(1+seed%3*20) * time.Millisecond, ProposedBytes: 8 << 10, LoadChunkBytes: 60, SnapshotEvents: 3 + int(seed%5), FilterAbove: 1 + int(seed%3)*10, EntitySends: 3, ShardSends: 20, ShardDeadLetters: 25, QuarantineFor: time.Millisecond, MinScheduleInterval: time.Millisecond,
	}, w)
	return w
}

// ReachedRevision implements activations.
func (w *world) ReachedRevision() uint64 { return w.typ.Revision }

// roomFunc reports whether there is memory for another instance.
type roomFunc func() bool

func (f roomFunc) HasRoom() bool { return f() }

// serve makes the node serve a revision of the activation. Two successive
// revisions, 2n and 2n+1, have the same module.
func (w *world) serve(revision uint64) {
	w.newest = max(w.newest, revision)
	w.typ = &Type{Name: "tally", Durable: w.durable, AlwaysOn: w.autostart, Singleton: w.singleton, Transient: w.transient, Workflow: w.workflow, Retain: w.retain, SnapshotKeep: int(w.retain / 7), Revision: revision, Digest: journal.Digest{byte(revision / 2)}}
	w.typ.Instantiate = func(context.Context) (Guest, error) {
		w.open++
		return &adder{w: w, rev: revision, sums: map[uint64]int64{}}, nil
	}
	if w.workflow {
		w.typ.SnapshotEvery = -1
	}
	if w.bounded {
		w.bound()
	}
}

// bound gives the type instances of its own, which fill up early, and sometimes
// no memory for another instance.
func (w *world) bound() {
	w.typ.OwnInstances, w.typ.FullAt = true, 2
	w.typ.Memory = roomFunc(func() bool { return w.rnd.IntN(3) > 0 })
}

// catchUp makes the node serve a revision that is later than the newest one
// by more, which may be 0.
func (w *world) catchUp(more uint64) {
	w.serve(w.newest + more)
	w.core.event(&coreEvent{Kind: eventActivationsChanged})
}

// Call executes a guest call now. Some calls run long: their outcomes arrive
// later.
func (w *world) Call(v *guestCall) bool {
	v.Exec(nil)
	v.SetTimes(w.now, w.now)
	if !w.long && (w.prompt || w.brisk || w.rnd.IntN(6) > 0) {
		return true
	}
	v.guest.(*adder).away = true
	w.away = append(w.away, v)
	return false
}

// comeBack returns the oldest long guest call.
func (w *world) comeBack() {
	if len(w.away) > 0 {
		v := w.away[0]
		w.away = w.away[1:]
		v.guest.(*adder).away = false
		w.core.event(&coreEvent{Kind: eventCallReturned, Call: v})
	}
}

func (w *world) Lookup(t string) *Type {
	if t == "tally" {
		return w.typ
	}
	return nil
}

func (w *world) Propose(_ sharding.ShardID, fence sharding.Term, n uint64, data []byte) error {
	if w.busy && w.rnd.IntN(4) == 0 {
		return errors.New("busy")
	}
	if len(data) > 1<<20 {
		return errors.New("the entry is too large")
	}
	if w.refuse {
		w.refuse = false
		return errors.New("refused")
	}
	if e, err := journal.DecodeEntry(data); err != nil || e.Fence != fence || e.Proposal != n {
		w.problem("proposal %d of term %d is an entry with %d of %d: %v", n, fence, e.Proposal, e.Fence, err)
	}
	w.flights = append(w.flights, flight{fence, n, data})
	return nil
}

func (w *world) ReadIndex(_ sharding.ShardID, token uint64) error {
	w.rounds = append(w.rounds, token)
	return nil
}

func (w *world) Busy() bool { return w.busy && w.rnd.IntN(3) == 0 }

func (w *world) start(l *load) {
	l.Read(l.ctx, w, w.core.opts.LoadChunkBytes, func(ch *historyChunk) error {
		w.chunks = append(w.chunks, coreEvent{Kind: chunkRead, load: l, chunk: ch})
		return nil
	})
}

func (w *world) Read(_ context.Context, _ sharding.ShardID, id sharding.EntityID, from journal.Sequence,
	fn func(*journal.Record, journal.Hash) error) error {
	var chain journal.Chain
	w.records = 0
	cut := w.cuts[id.ID]
	if cut > 0 && from < cut {
		return &journal.TruncatedError{First: cut + 1}
	}
	for i := range w.log {
		r := w.log[i]
		if r.Entity == id && r.Last() >= from && (cut == 0 || r.Last() > cut) {
			w.records++
			if err := fn(&r, chain.After(&r)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) Snapshot(_ context.Context, _ sharding.ShardID, id sharding.EntityID, use journal.SnapshotUse, below journal.Sequence) (*journal.Snapshot, error) {
	snaps := w.snaps[id.ID]
	if w.meanwhile != nil {
		defer w.meanwhile()
	}
	var last *journal.Snapshot
	for i := len(snaps) - 1; i >= 0; i-- {
		s := snaps[i]
		if below != 0 && s.Sequence >= below {
			continue
		}
		s.UpdatedAt = w.updatedAt(id)
		if i < len(snaps)-1 || w.newest%2 == 1 {
			s.Stands = journal.Position{} // unknown, as in snapshots of earlier releases
		}
		switch use(s.Module, w.cuts[id.ID] > 0) {
		case journal.SnapshotLoads:
			return &s, nil
		case journal.SnapshotLastResort:
			if last == nil {
				last = &s
			}
		}
	}
	return last, nil
}

// applySnapshot applies the journal's rules for snapshots.
func (w *world) applySnapshot(body []byte) error {
	var s journal.Snapshot
	if err := s.Decode(body); err != nil {
		w.t.Fatal(err)
	}
	h := w.head(s.Entity.ID)
	if s.Sequence != h.sequence || s.Hash != h.hash || h.deleted {
		return errors.New("a snapshot of another history")
	}
	if string(s.State) != strconv.FormatInt(h.sum, 10) {
		w.problem("a snapshot of %s at %d has %s, the log %d", s.Entity, s.Sequence, s.State, h.sum)
	}
	if len(s.Filter) > 0 {
		s.Stands = journal.Position{Index: uint64(len(w.log))}
	}
	w.snaps[s.Entity.ID] = append(w.snaps[s.Entity.ID], s)
	return nil
}

func (w *world) updatedAt(id sharding.EntityID) (at int64) {
	for i := range w.log {
		if w.log[i].Entity == id {
			at = w.log[i].RecordedAt
		}
	}
	return at
}

// tick returns the command of a timer. Most succeed, some are rejected, before
// or after an event, and some fail.
func (w *world) tick() string {
	return []string{"tick", "tick", "tick", "deny", "refuse", "trap"}[w.rnd.IntN(6)]
}

func (w *world) applyTimers(r *journal.Record) {
	defer w.applyDelete(r)
	if !strings.HasPrefix(string(r.CommandID), "by-") && !strings.HasPrefix(string(r.CommandID), "passivate-") && !w.skips(r) {
		w.checkFuel(r)
	}
	if source := r.Section(journal.SectionSource); source != nil && source[0] == journal.SourceTimer {
		s, err := journal.DecodeTimerSource(source)
		if err != nil {
			w.t.Fatal(err)
		}
		key := timerKey{r.Entity, string(s.Name)}
		t, ok := w.timers[key]
		switch {
		case !ok || t.Due != s.Due:
			w.problem("timer %v fired at %d, it is set: %v to %d", key, s.Due, ok, t.Due)
		case s.Due > r.RecordedAt:
			w.problem("timer %v of %d fired at %d", key, s.Due, r.RecordedAt)
		case w.skips(r):
			if len(r.Events) != 0 {
				w.problem("a tick of %v that was skipped left %v", key, r.Events)
			}
		case string(t.Command) == "tick" && !w.durable && (len(r.Events) != 1 || string(r.Events[0].Payload) != string(t.Payload)):
			w.problem("timer %v fired with %v", key, r.Events)
		case string(t.Command) != "tick" && len(r.Events) != 0:
			w.problem("timer %v was refused and left %v", key, r.Events)
		}
		defer w.checkRenewal(r, t)
		delete(w.timers, key)
		w.fired++
	}
	schedules := r.Section(journal.SectionSchedules)
	for n, ops := 0, r.Section(journal.SectionTimers); len(ops) > 0; n++ {
		op, rest, err := journal.NextTimerOp(ops)
		if err != nil {
			w.t.Fatal(err)
		}
		ops = rest
		key := timerKey{r.Entity, string(op.Name)}
		if delete(w.timers, key); !op.Cancel {
			t := journal.Timer{Entity: r.Entity, Name: string(op.Name), Due: op.Due, Command: op.Command, Payload: op.Payload}
			t.Schedule, schedules = w.scheduleOf(schedules, n)
			w.timers[key] = t
		}
	}
}

// checkFuel checks that each record has the fuel of its own command.
func (w *world) checkFuel(r *journal.Record) {
	want := uint64(binary.LittleEndian.Uint16(append([]byte(r.CommandID), 'x', 'y'))) + 1
	data := r.Section(journal.SectionFuel)
	if len(data) != 8 || binary.LittleEndian.Uint64(data) != want {
		w.problem("command %s has cost %d, the record says %v", r.CommandID, want, data)
		return
	}
	w.fuel += want
}

// applyDelete ends the timers and snapshots of a deleted entity.
func (w *world) applyDelete(r *journal.Record) {
	if r.Flags&journal.FlagTombstone != 0 {
		maps.DeleteFunc(w.timers, func(k timerKey, _ journal.Timer) bool { return k.entity == r.Entity })
		w.snaps[r.Entity.ID] = nil
		w.deleted++
	}
}

func (w *world) scan(t *timers.Scan) {
	t.Do(context.Background(), w)
	w.scans = append(w.scans, t)
}

func (w *world) DueTimers(_ context.Context, _ sharding.ShardID, by int64, limit int,
	skip func(sharding.EntityID, string, int64) bool) (due []journal.Timer, next int64, err error) {
	all := slices.SortedFunc(maps.Values(w.timers), func(a, b journal.Timer) int {
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Entity.ID, b.Entity.ID), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range all {
		switch {
		case skip(t.Entity, t.Name, t.Due), w.hush && t.Schedule != nil:
		case t.Due > by || len(due) == min(limit, 3):
			return due, t.Due, nil
		default:
			due = append(due, t)
		}
	}
	return due, math.MaxInt64, nil
}

// timerKey identifies a timer of the world.
type timerKey struct {
	entity sharding.EntityID
	name   string
}

// found delivers the result of the oldest pending read of due timers.
func (w *world) found() {
	if len(w.scans) > 0 {
		t := w.scans[0]
		w.scans = w.scans[1:]
		w.core.event(&coreEvent{Kind: timersRead, scan: t})
	}
}

func (w *world) head(id string) *head {
	h := w.heads[id]
	if h == nil {
		h = &head{}
		w.heads[id] = h
	}
	return h
}

// apply applies the journal's rules: an entry is applied completely or not at
// all, in the term of its fence, and each record follows the entity's last
// sequence and hash.
func (w *world) apply(f flight) error {
	e, err := journal.DecodeEntry(f.data)
	if err != nil {
		w.t.Fatal(err)
	}
	if e.Fence != w.term {
		return errors.New("fenced")
	}
	if r, ok := e.BindingsRevision(); ok {
		w.revision = max(w.revision, r)
		return nil
	}
	if e.Kind == journal.EntrySnapshot {
		return w.applySnapshot(e.Body)
	}
	w.messages.index++
	messages := w.messages.staged()
	if e.Kind == journal.EntryOutbox {
		if err := messages.steps(e.Body); err != nil {
			return err
		}
		w.messages = messages
		return nil
	}
	var recs []journal.Record
	heads := map[string]head{}
	for b := e.Body; len(b) > 0; {
		raw, rest, err := journal.SplitRecord(b)
		if err != nil {
			w.t.Fatal(err)
		}
		var r journal.Record
		if err := r.Decode(raw); err != nil {
			w.t.Fatal(err)
		}
		h, ok := heads[r.Entity.ID]
		if !ok {
			h = *w.head(r.Entity.ID)
		}
		if r.Expected != h.sequence || r.Prev != h.hash {
			return fmt.Errorf("sequence %d, expected %d", h.sequence, r.Expected)
		}
		if err := messages.record(&r, journal.ItemID{Index: messages.index, Ordinal: uint32(len(recs))}); err != nil {
			return err
		}
		var chain journal.Chain
		h.sequence, h.hash = r.Last(), chain.After(&r)
		for _, ev := range r.Events {
			h.sum = evolve(h.sum, ev)
		}
		if h.deleted = r.Flags&journal.FlagTombstone != 0; h.deleted {
			// Losing a record without events does not break the hash chain, so
			// a later deletion may assume that the entity exists.
			if last := len(r.Events) - 1; (h.exists || last > 0) != (last >= 0 && r.Tombstone(last)) && (h.exists || !w.lost) {
				w.problem("%s lives: %v, and its end leaves %v", r.Entity, h.exists, r.Events)
			}
			h.sum, h.deletions = 0, h.deletions+1
		}
		h.exists, h.stopped = !h.deleted, r.Flags&journal.FlagStopped != 0
		heads[r.Entity.ID] = h
		recs = append(recs, r)
		b = rest
	}
	w.messages = messages
	for id, h := range heads {
		*w.head(id) = h
	}
	for i := range recs {
		w.applyTimers(&recs[i])
		w.checkDelivery(&recs[i])
	}
	w.log = append(w.log, recs...)
	return nil
}
