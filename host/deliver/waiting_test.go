package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// bench drives a Core in virtual time against scripted destinations.
type bench struct {
	t       *testing.T
	core    *Core
	now     time.Time
	index   uint64
	box     []journal.Message // ordered by id
	counts  map[channel]*journal.ChannelCounters
	had     map[channel]uint64 // highest number that a destination accepted
	out     []*request.Request
	acks    []*request.Request
	unknown map[string]bool
	// fails returns the error of a destination, or errHangs for no outcome
	// before the deadline.
	fails func(*request.Request) error
	rows  int // number of rows read
	log   bytes.Buffer
}

// errHangs means that a request has no outcome before its deadline.
var errHangs = errors.New("hangs")

func newBench(t *testing.T, opts Options) *bench {
	b := &bench{t: t, now: time.Unix(1_700_000_000, 0), counts: map[channel]*journal.ChannelCounters{}, had: map[channel]uint64{}}
	opts.Shards, opts.Outboxes, opts.Router, opts.Types, opts.Stop = b, b, b, b, errStop
	opts.Logger = slog.New(slog.NewTextHandler(&b.log, nil))
	b.core = NewCore(opts)
	return b
}

func (b *bench) Leads() []Lead                                  { return []Lead{{worldShard, 1}} }
func (b *bench) LeadsChanged() <-chan struct{}                  { return nil }
func (b *bench) Propose(_ sharding.ShardID, r *request.Request) { b.acks = append(b.acks, r) }
func (b *bench) Submit(r []*request.Request)                    { b.out = append(b.out, r...) }
func (b *bench) IsServed(name string) bool                      { return !b.unknown[name] }
func (b *bench) IsUnknown(name string) bool                     { return b.unknown[name] }

func (b *bench) ChannelCounters(_ sharding.ShardID, from, to sharding.EntityID) (journal.ChannelCounters, error) {
	return *b.counts[channel{from, to}], nil
}

func (b *bench) find(id journal.ItemID) (int, bool) {
	return slices.BinarySearchFunc(b.box, id, func(m journal.Message, id journal.ItemID) int {
		switch {
		case m.ID.Less(id):
			return -1
		case id.Less(m.ID):
			return 1
		}
		return 0
	})
}

func (b *bench) Message(_ sharding.ShardID, id journal.ItemID) (*journal.Message, error) {
	if i, ok := b.find(id); ok {
		m := b.box[i]
		return &m, nil
	}
	return nil, nil
}

func (b *bench) Outbox(_ context.Context, _ sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error {
	i, ok := b.find(after)
	if ok {
		i++
	}
	for ; i < len(b.box); i++ {
		b.rows++
		if err := fn(&b.box[i]); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}
	return nil
}

// add adds messages of a channel to the outbox, one entry each.
func (b *bench) add(from, to sharding.EntityID, n int) {
	k := channel{from, to}
	if b.counts[k] == nil {
		b.counts[k] = &journal.ChannelCounters{}
	}
	for range n {
		b.counts[k].Last++
		b.index++
		b.box = append(b.box, journal.Message{ID: journal.ItemID{Index: b.index}, Source: from, Destination: to, Number: b.counts[k].Last, Command: "do", Payload: make([]byte, 100)})
	}
	b.core.NotifySent(worldShard)
}

// run runs until a condition holds, and returns how long that took.
func (b *bench) run(most time.Duration, until func() bool) time.Duration {
	b.t.Helper()
	began := b.now
	for !until() {
		if b.now.Sub(began) > most {
			b.t.Fatalf("nothing came of it in %v: %d messages left, %+v, log:\n%s", most, len(b.box), b.core.Stats(), b.log.String())
		}
		b.now = b.now.Add(10 * time.Millisecond)
		b.core.Step(b.now)
		b.answer()
	}
	return b.now.Sub(began)
}

// pass lets time pass.
func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	until := b.now.Add(d)
	b.run(2*d, func() bool { return b.now.After(until) })
}

// answer ends the requests that are out, as destinations and the shard do.
func (b *bench) answer() {
	out := b.out
	b.out = nil
	for _, r := range out {
		k := channel{r.Delivery.Source, r.Entity}
		var err error
		if b.fails != nil {
			err = b.fails(r)
		}
		switch {
		case errors.Is(err, errHangs) && b.now.Before(r.Deadline):
			b.out = append(b.out, r)
			continue
		case err != nil || r.Delivery.Number <= b.had[k]:
		case r.Delivery.After > b.had[k]:
			err = &request.GapError{Wanted: b.had[k] + 1}
		default:
			b.had[k] = r.Delivery.Number
		}
		r.Result = request.Result{Err: err}
		r.Done.Complete(r)
	}
	acks := b.acks
	b.acks = nil
	for _, r := range acks {
		for _, a := range r.Delivery.GaveUp {
			if i, ok := b.find(a.ID); ok {
				b.counts[channel{b.box[i].Source, b.box[i].Destination}].GiveUp(b.box[i].Number)
			}
		}
		over := map[journal.ItemID]bool{}
		for _, a := range slices.Concat(r.Delivery.Arrived, r.Delivery.GaveUp) {
			over[a.ID] = true
		}
		b.box = slices.DeleteFunc(b.box, func(m journal.Message) bool { return over[m.ID] })
		r.Result = request.Result{}
		r.Done.Complete(r)
	}
}

func entityOf(typ string, n int) sharding.EntityID {
	return sharding.EntityID{Type: typ, ID: fmt.Sprint(n)}
}

// Whatever keeps messages from their destinations, and however many channels
// and messages are affected, messages between other entities of the shard
// arrive at once. The blocked messages arrive once their destinations accept
// them.
func TestBlockedChannelsDoNotDelayOthers(t *testing.T) {
	for _, c := range []struct {
		name         string
		pairs, each  int
		err          error
		opts         Options
		first, later time.Duration // maximum delay of a healthy message: while the other messages fail for the first time, and afterwards
	}{
		{"a suspended type", 9, 80, request.ErrSuspended, Options{}, time.Second, 100 * time.Millisecond},
		{"a suspended type, many pairs", 2000, 20, request.ErrSuspended, Options{}, 3 * time.Second, 100 * time.Millisecond},
		{"full dead letters, one message each", 17_000, 1, request.ErrDeadLettersFull, Options{}, 3 * time.Second, 100 * time.Millisecond},
		{"no outcome before the deadline", 40, 80, errHangs, Options{}, time.Second, 100 * time.Millisecond},
		{"no outcome before the deadline, more pairs than probes", 700, 3, errHangs, Options{}, 15 * time.Second, 100 * time.Millisecond},
		{"guests fail", 100, 80, &request.GuestFaultError{}, Options{Attempts: 1000}, time.Second, 100 * time.Millisecond},
		{"more pairs than are known", 1000, 3, request.ErrBusy, Options{Channels: 100, ShardHeld: 64, InFlight: 100}, 3 * time.Second, 200 * time.Millisecond},
		{"more pairs than are known, without outcome", 200, 3, errHangs, Options{Channels: 100, ShardHeld: 64, InFlight: 100}, 200 * time.Second, 15 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.opts)
			away := true
			b.fails = func(r *request.Request) error {
				if away && r.Entity.Type == "away" {
					return c.err
				}
				return nil
			}
			for range c.each {
				for i := range c.pairs {
					b.add(entityOf("source", i), entityOf("away", i), 1)
				}
			}
			healthy := 0
			arrives := func(most time.Duration) {
				t.Helper()
				healthy++
				from, to := entityOf("source", 1), entityOf("healthy", healthy%5)
				b.add(from, to, 100)
				b.run(most, func() bool { return b.had[channel{from, to}] == b.counts[channel{from, to}].Last })
			}
			arrives(c.first)
			b.pass(30 * time.Second)
			if n := b.core.Stats().Waiting; n == 0 {
				t.Error("no pair is said to wait")
			}
			for range 20 {
				arrives(c.later)
				b.pass(700 * time.Millisecond)
			}
			if n := strings.Count(b.log.String(), "messages are waiting"); n == 0 || n > 8 {
				t.Errorf("that messages wait is logged %d times", n)
			}
			away = false
			b.run(20*time.Minute, func() bool { return len(b.box) == 0 && b.core.Idle() })
			for k, n := range b.counts {
				if b.had[k] != n.Last {
					t.Fatalf("%v has %d of %d messages", k, b.had[k], n.Last)
				}
			}
			if n := b.core.Stats().Waiting; n != 0 {
				t.Errorf("%d pairs are said to wait in the end", n)
			}
		})
	}
}

// Messages that were left in the outbox while the first message of their
// channel waited are read again.
func TestLongBlockedChannelDeliversAll(t *testing.T) {
	for _, n := range []int{1, 2, 3, 64, 65, 500} {
		b := newBench(t, Options{})
		away := true
		b.fails = func(*request.Request) error {
			if away {
				return request.ErrSuspended
			}
			return nil
		}
		k := channel{entityOf("t", 1), entityOf("t", 2)}
		b.add(k.from, k.to, (n+1)/2)
		b.pass(20 * time.Second)
		b.add(k.from, k.to, n/2)
		b.pass(time.Second)
		away = false
		b.run(10*time.Second, func() bool { return b.core.Idle() })
		if b.had[k] != uint64(n) {
			t.Errorf("%d of %d messages arrived", b.had[k], n)
		}
	}
}

// Messages to a type that does not exist are given up. If the type is created
// later, messages that were sent since the last lookup of the type are
// delivered.
func TestMessagesToUnknownTypesAreGivenUpInOrder(t *testing.T) {
	b := newBench(t, Options{})
	b.unknown = map[string]bool{"ghost": true}
	k := channel{entityOf("t", 1), entityOf("ghost", 2)}
	b.add(k.from, k.to, 300)
	b.run(30*time.Second, func() bool { return b.core.Idle() })
	if c := b.counts[k]; c.After != 0 || c.GivenUp != 300 || len(b.box) > 0 {
		t.Fatalf("%+v, %d messages left", c, len(b.box))
	}
	b.unknown = nil
	b.add(k.from, k.to, 3)
	b.run(30*time.Second, func() bool { return b.core.Idle() })
	if b.had[k] != 303 {
		t.Fatalf("the destination has message %d", b.had[k])
	}
}

// A shard tracks a bounded number of channels, and reads a bounded part of
// its outbox for each waiting channel.
func TestBlockedChannelsAreBounded(t *testing.T) {
	const pairs = 20_000
	b := newBench(t, Options{Channels: 5000})
	b.fails = func(r *request.Request) error { return request.ErrSuspended }
	for i := range pairs {
		b.add(entityOf("source", i), entityOf("away", i), 1)
	}
	tries := map[sharding.EntityID]int{}
	fails := b.fails
	b.fails = func(r *request.Request) error {
		tries[r.Entity]++
		return fails(r)
	}
	b.run(10*time.Minute, func() bool { return len(tries) == pairs })
	clear(tries)
	b.rows = 0
	took := b.run(10*time.Minute, func() bool { return len(tries) == pairs })
	if s := b.core.core.shards[worldShard]; len(s.flows) > b.core.core.opts.Channels {
		t.Errorf("%d pairs are known", len(s.flows))
	}
	t.Logf("each of %d pairs was tried again within %v; %d rows were read", pairs, took, b.rows)
}

// Messages to types that do not exist are given up in order, even if there
// are far more channels than the shard tracks. If a lap finds a channel that
// was forgotten before the lap passed the channel's first message, the
// message with which it finds the channel is that first message.
func TestUntrackedChannelsAreGivenUpInOrder(t *testing.T) {
	b := newBench(t, Options{Channels: 8, MaxWait: 100 * time.Millisecond})
	b.unknown = map[string]bool{"ghost": true}
	const pairs, each = 300, 3
	for range each {
		for n := range pairs {
			b.add(entityOf("order", n), entityOf("ghost", n), 1)
		}
	}
	took := b.run(time.Hour, func() bool { return len(b.box) == 0 })
	t.Logf("all were given up after %v", took)
	if got := b.core.Stats().GivenUp; got != pairs*each {
		t.Errorf("%d were given up, there were %d", got, pairs*each)
	}
	for n := range pairs {
		if c := b.counts[channel{entityOf("order", n), entityOf("ghost", n)}]; c.After != 0 || c.GivenUp != each {
			t.Fatalf("the pair of order %d has %+v", n, *c)
		}
	}
}

// If more channels wait than the table has room for, laps find them again, a
// quarter of the table per back-off. A lap must not spend back-offs on messages
// that cannot be the first of their channel: when the destinations are back,
// some message arrives within a few back-offs.
func TestSmallTableKeepsDraining(t *testing.T) {
	const most = 5 * time.Second // maximum time without an arrival
	b := newBench(t, Options{Channels: 3, ChannelWindow: 1, MaxWait: time.Second, FaultWait: 100 * time.Millisecond, Attempts: 3})
	healthy := false
	b.fails = func(*request.Request) error {
		if healthy {
			return nil
		}
		return request.ErrSuspended
	}
	const sources, destinations, each = 5, 5, 4
	for range each {
		for n := range sources * destinations {
			b.add(entityOf("source", n/destinations), entityOf("slow", n%destinations), 1)
		}
	}
	b.pass(time.Minute)
	if len(b.box) != sources*destinations*each {
		t.Fatalf("%d messages wait", len(b.box))
	}
	healthy = true
	var total, longest time.Duration
	for left := len(b.box); left > 0; left = len(b.box) {
		took := b.run(most, func() bool { return len(b.box) < left })
		total, longest = total+took, max(longest, took)
	}
	t.Logf("all arrived after %v, and one at least every %v", total, longest)
}

// TestMessagesBehindTheirChannelAreFound: the destination accepted a message
// from an earlier leader, which left it in the outbox. It must be acknowledged
// although the shard tracks the channel only from the next message on.
func TestMessagesBehindTheirChannelAreFound(t *testing.T) {
	b := newBench(t, Options{Channels: 4})
	from, to := entityOf("source", 0), entityOf("known", 0)
	k := channel{from, to}
	busy, later := true, true
	b.fails = func(r *request.Request) error {
		switch n := r.Delivery.Number; {
		case r.Delivery.Source != from && busy, r.Delivery.Source == from && n == 1 && busy, r.Delivery.Source == from && n == 3 && later:
			return request.ErrBusy
		}
		return nil
	}
	b.add(from, to, 1)
	b.had[k] = 1
	for i := range 12 {
		b.add(entityOf("source", 1+i), entityOf("away", i), 1)
	}
	b.run(10*time.Second, func() bool {
		for _, s := range b.core.core.order {
			if s.flows[k] == nil && s.waiting.forgot {
				return true
			}
		}
		return false
	})
	b.add(from, to, 2)
	b.run(10*time.Second, func() bool { return b.had[k] == 2 })
	busy = false
	b.pass(time.Minute) // laps
	later = false
	b.run(2*time.Minute, func() bool { return len(b.box) == 0 })
}

// TestLapsPause: if a lap leaves a message that lies before the tracked part of
// its channel, the lap must be repeated. The repetition starts only after a
// pause, even if the last slice of the outbox was full. Otherwise each step
// would read a slice of the outbox.
func TestLapsPause(t *testing.T) {
	for _, rows := range []int{sliceRows - 1, sliceRows, 2 * sliceRows, 2*sliceRows + 1} {
		b := newBench(t, Options{Channels: 8, MaxWait: time.Second})
		from, to := entityOf("source", 0), entityOf("away", 0)
		b.fails = func(r *request.Request) error { return request.ErrSuspended }
		b.add(from, to, rows)
		b.run(10*time.Second, func() bool { return len(b.core.core.order) > 0 && len(b.core.core.order[0].waiting.deferred) == 1 })
		s := b.core.core.order[0]
		s.flows[channel{from, to}].after = b.box[0].ID // the destination has accepted the first message
		s.cursor, s.waiting.forgot = b.box[rows-1].ID, true
		b.rows = 0
		began := b.core.core.now
		laps := s.waiting.laps
		for range 100 {
			b.core.core.lap(s)
		}
		if n := s.waiting.laps - laps; n != 1 || b.rows > rows+2*(rows/sliceRows+1) || b.core.core.now != began {
			t.Errorf("%d rows: %d laps at one time, which read %d rows", rows, n, b.rows)
		}
	}
}
