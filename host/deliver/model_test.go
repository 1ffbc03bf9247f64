package deliver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

var (
	modelSeeds = flag.Uint64("model.seeds", 60, "number of seeds of the dispatcher's model test")
	modelSeed  = flag.Uint64("model.seed", 1, "first seed of the dispatcher's model test")
)

var errStop = errors.New("stop")

// world contains the shards, their outboxes, the destinations and the router
// around a dispatcher's core, driven by one seed. Terms end, outcomes are lost,
// types are unknown and become known, and guests fail.
type world struct {
	t    *testing.T
	rnd  *rand.Rand
	core core

	term     sharding.Term
	leads    bool
	index    uint64
	outbox   []journal.Message
	pairs    map[channel]*journal.ChannelCounters
	received map[channel]uint64
	took     map[channel][]uint64 // numbers that destinations accepted, in order
	refused  map[channel][]uint64 // numbers that were rejected, in order
	gaveUp   map[channel][]uint64
	exists   bool // the type "late" exists
	out      []*request.Request
	proposed []*request.Request
	asks     []*typeLookup
	calm     bool
	problems []string
	made     int
}

func (w *world) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

const worldShard = sharding.ShardID(3)

func (w *world) Leads() []Lead {
	if w.leads {
		return []Lead{{worldShard, w.term}}
	}
	return nil
}
func (w *world) LeadsChanged() <-chan struct{}                  { return nil }
func (w *world) Propose(_ sharding.ShardID, r *request.Request) { w.proposed = append(w.proposed, r) }
func (w *world) Submit(reqs []*request.Request)                 { w.out = append(w.out, reqs...) }
func (w *world) IsServed(name string) bool                      { return name != "late" || w.exists }
func (w *world) IsUnknown(name string) bool                     { return !w.IsServed(name) }
func (w *world) put(n news)                                     { w.core.take(&n) }
func (w *world) confirm(a *typeLookup)                          { w.asks = append(w.asks, a) }
func (w *world) ChannelCounters(_ sharding.ShardID, a, b sharding.EntityID) (journal.ChannelCounters, error) {
	if c := w.pairs[channel{a, b}]; c != nil {
		return *c, nil
	}
	return journal.ChannelCounters{}, nil
}

func (w *world) Outbox(_ context.Context, _ sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error {
	if !w.calm && w.rnd.IntN(50) == 0 {
		return errors.New("installing")
	}
	for i := range w.outbox {
		if s := w.outbox[i]; after.Less(s.ID) {
			if err := fn(&s); errors.Is(err, errStop) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) Message(_ sharding.ShardID, id journal.ItemID) (*journal.Message, error) {
	if !w.calm && w.rnd.IntN(50) == 0 {
		return nil, errors.New("installing")
	}
	for i := range w.outbox {
		if s := w.outbox[i]; s.ID == id {
			return &s, nil
		}
	}
	return nil, nil
}

// addMessages adds the messages of one record.
func (w *world) addMessages() {
	w.index++
	n := 1 + w.rnd.IntN(4)
	if w.rnd.IntN(10) == 0 {
		n = 40
	}
	for i := range n {
		k := channel{sharding.EntityID{Type: "t", ID: fmt.Sprint(w.rnd.IntN(3))}, sharding.EntityID{Type: "t", ID: fmt.Sprint(w.rnd.IntN(5))}}
		if w.rnd.IntN(6) == 0 {
			k.to.Type = "late"
		}
		c := w.pairs[k]
		if c == nil {
			c = &journal.ChannelCounters{}
			w.pairs[k] = c
		}
		c.Last++
		w.made++
		w.outbox = append(w.outbox, journal.Message{
			ID: journal.ItemID{Index: w.index, Ordinal: uint32(w.rnd.IntN(2)), Item: uint16(i)}, Source: k.from, Destination: k.to, Number: c.Last,
			Command: []string{"do", "do", "do", "do", "trap"}[w.rnd.IntN(5)], Payload: make([]byte, w.rnd.IntN(200)),
		})
	}
	slices.SortFunc(w.outbox, func(a, b journal.Message) int {
		if a.ID.Less(b.ID) {
			return -1
		}
		return 1
	})
	w.renumber()
	w.core.take(&news{shard: worldShard})
}

// renumber numbers the messages of the newest record in their order.
func (w *world) renumber() {
	next := map[channel]uint64{}
	for i := range w.outbox {
		s := &w.outbox[i]
		if s.ID.Index != w.index {
			continue
		}
		k := channel{s.Source, s.Destination}
		if _, ok := next[k]; !ok {
			low := s.Number
			for _, o := range w.outbox {
				if o.ID.Index == w.index && o.Source == s.Source && o.Destination == s.Destination {
					low = min(low, o.Number)
				}
			}
			next[k] = low
		}
		s.Number = next[k]
		next[k]++
	}
}

// arrive handles a delivery at its destination, as the destination's executor
// would.
func (w *world) arrive(r *request.Request) error {
	d := r.Delivery
	k := channel{d.Source, r.Entity}
	had := w.received[k]
	switch {
	case k.to.Type == "late" && !w.exists:
		return request.ErrNotServed
	case d.Number <= had:
		return nil
	case d.After > had:
		return &request.GapError{Wanted: had + 1}
	case d.Refuse != nil:
		w.refused[k] = append(w.refused[k], d.Number)
	case r.Name == "trap":
		return &request.GuestFaultError{Message: "trap"}
	default:
		w.took[k] = append(w.took[k], d.Number)
	}
	w.received[k] = d.Number
	return nil
}

// complete ends one outstanding request, the first of its channel at the
// router, because the router keeps the order of an entity's requests.
func (w *world) complete() {
	if len(w.out) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.out))
	for j, r := range w.out[:i] {
		if r.Entity == w.out[i].Entity {
			i = j
			break
		}
	}
	r := w.out[i]
	w.out = slices.Delete(w.out, i, i+1)
	var err error
	switch p := w.rnd.IntN(12); {
	case w.calm || p > 3:
		err = w.arrive(r)
	case p == 0: // it ran, but the answer was lost
		_ = w.arrive(r)
		err = request.ErrOutcomeUnknown
	case p == 1:
		err = request.ErrOutcomeUnknown
	case p == 2:
		err = request.ErrBusy
	default:
		err = &sharding.NotLeaderError{}
	}
	r.Result = request.Result{Err: err}
	r.Done.Complete(r)
}

// answerProposed ends one request to the shard's executor.
func (w *world) answerProposed() {
	if len(w.proposed) == 0 {
		return
	}
	r := w.proposed[0]
	w.proposed = w.proposed[1:]
	if !w.calm && w.rnd.IntN(4) == 0 {
		r.Result = request.Result{Err: request.ErrOutcomeUnknown}
		if w.rnd.IntN(2) == 0 {
			w.apply(r)
		}
	} else {
		w.apply(r)
		r.Result = request.Result{}
	}
	r.Done.Complete(r)
}

func (w *world) apply(r *request.Request) {
	for _, a := range r.Delivery.Arrived {
		i := slices.IndexFunc(w.outbox, func(s journal.Message) bool { return s.ID == a.ID })
		if i < 0 {
			continue
		}
		s := w.outbox[i]
		if w.received[channel{s.Source, s.Destination}] < s.Number {
			w.problem("send %d of %v to %v is acknowledged and has not arrived", s.Number, s.Source, s.Destination)
		}
		w.outbox = slices.Delete(w.outbox, i, i+1)
	}
	for _, a := range r.Delivery.GaveUp {
		i := slices.IndexFunc(w.outbox, func(s journal.Message) bool { return s.ID == a.ID })
		if i < 0 {
			continue
		}
		s := w.outbox[i]
		k := channel{s.Source, s.Destination}
		for _, o := range w.outbox[:i] {
			if o.Source == s.Source && o.Destination == s.Destination {
				w.problem("send %d of %v is given up before %d", s.Number, k, o.Number)
			}
		}
		w.pairs[k].GiveUp(s.Number)
		w.gaveUp[k] = append(w.gaveUp[k], s.Number)
		w.outbox = slices.Delete(w.outbox, i, i+1)
	}
}

func (w *world) step() {
	w.core.now = w.core.now.Add(time.Duration(w.rnd.IntN(20)) * time.Millisecond)
	w.core.lead(w.Leads())
	w.core.step()
	if s := w.core.shards[worldShard]; s != nil {
		w.checkMemory(s)
	}
	if w.core.flight > w.core.opts.InFlight {
		w.problem("%d are in flight", w.core.flight)
	}
}

// checkMemory checks the memory that a shard accounts for, and its limits.
func (w *world) checkMemory(s *shard) {
	var inMemory, probes load
	parked := 0
	for _, f := range s.flows {
		for _, it := range f.items {
			if it.load == &s.inMemory {
				inMemory.add(&it.message)
			} else {
				probes.add(&it.message)
			}
		}
		if f.deferred {
			parked++
			if len(f.items) > 0 {
				w.problem("a pair that waits holds %d sends", len(f.items))
			}
		}
	}
	o := &w.core.opts
	switch {
	case inMemory != s.inMemory || probes != s.waiting.probes:
		w.problem("%+v and %+v are held, %+v and %+v accounted for", inMemory, probes, s.inMemory, s.waiting.probes)
	case inMemory.messages > o.ShardHeld || probes.messages > max(1, o.ShardHeld/2):
		w.problem("%+v and %+v are held", inMemory, probes)
	case parked != len(s.waiting.deferred):
		w.problem("%d pairs wait, %d are due some time", parked, len(s.waiting.deferred))
	case len(s.flows) > o.Channels:
		w.problem("%d pairs are known", len(s.flows))
	}
}

func (w *world) answer() {
	if len(w.asks) > 0 {
		a := w.asks[0]
		w.asks = w.asks[1:]
		a.unknown = w.IsUnknown(a.name) && (w.calm || w.rnd.IntN(3) > 0)
		w.core.take(&news{asked: a})
	}
}

func (w *world) play(steps int) {
	w.term, w.leads = 1, true
	for i := 0; i < steps && len(w.problems) == 0; i++ {
		switch p := w.rnd.IntN(100); {
		case p < 12:
			w.addMessages()
		case p < 70:
			w.complete()
		case p < 85:
			w.answerProposed()
		case p < 95:
			w.answer()
		case p < 97:
			for _, r := range w.proposed { // proposals are in the log by now, or never will be
				if w.rnd.IntN(2) == 0 {
					w.apply(r)
				}
				r.Result = request.Result{Err: request.ErrOutcomeUnknown}
				r.Done.Complete(r)
			}
			w.proposed = nil
			w.leads = !w.leads
			w.term++
		case p == 97:
			w.exists = w.exists || w.rnd.IntN(4) == 0
		}
		w.step()
	}
	w.calm, w.leads = true, true
	for i := 0; i < 200_000 && len(w.problems) == 0 && (len(w.outbox) > 0 || len(w.out) > 0); i++ {
		w.complete()
		w.answerProposed()
		w.answer()
		w.core.now = w.core.now.Add(50 * time.Millisecond)
		w.step()
	}
	w.check()
}

// check checks that each message took effect once and in order, was rejected,
// or was given up.
func (w *world) check() {
	if n := len(w.outbox); n > 0 {
		w.problem("%d sends are left: %+v", n, w.outbox[0])
	}
	for k, c := range w.pairs {
		if !slices.IsSorted(w.took[k]) {
			w.problem("%v took %v", k, w.took[k])
		}
		all := slices.Concat(w.took[k], w.refused[k], w.gaveUp[k])
		slices.Sort(all)
		for i, n := range all {
			if n != uint64(i)+1 {
				w.problem("%v: %v are done, %d were sent", k, all, c.Last)
				break
			}
		}
		if uint64(len(all)) != c.Last {
			w.problem("%v: %v are done, %d were sent", k, all, c.Last)
		}
	}
}

// Whatever is lost on the way, and whichever node leads, each message is
// executed once and in order, and none is acknowledged earlier.
func TestDispatcherMatchesSequentialModel(t *testing.T) {
	n := *modelSeeds
	if testing.Short() {
		n = 50
	}
	var made, gaveUp, refused int
	var retries uint64
	for seed := *modelSeed; seed < *modelSeed+n; seed++ {
		w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), pairs: map[channel]*journal.ChannelCounters{}, received: map[channel]uint64{},
			took: map[channel][]uint64{}, refused: map[channel][]uint64{}, gaveUp: map[channel][]uint64{}}
		w.core = newCore(Options{
			Shards: w, Outboxes: w, Router: w, Types: w, Stop: errStop, Clock: func() time.Time { return w.core.now },
			ChannelWindow: 1 + int(seed%5), ShardHeld: 4 + int(seed%40), HeldBytes: 5_000, Channels: 3 + int(seed%20), InFlight: 2 + int(seed%30), Attempts: 3,
		}.withDefaults(), w)
		w.core.now = time.Unix(1_700_000_000, 0)
		w.play(800)
		if len(w.problems) > 0 {
			t.Fatalf("seed %d (replay with -model.seed=%d -model.seeds=1): %s", seed, seed, w.problems[0])
		}
		made += w.made
		retries += w.core.counts.retries.Load()
		for _, g := range w.gaveUp {
			gaveUp += len(g)
		}
		for _, g := range w.refused {
			refused += len(g)
		}
	}
	t.Logf("%d sends, %d attempts that failed, %d given up, %d refused", made, retries, gaveUp, refused)
	if n >= 50 && (retries == 0 || gaveUp == 0 || refused == 0) {
		t.Error("the runs were too tame")
	}
}
