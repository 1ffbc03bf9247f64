package entity

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// sleeper is a guest that adds numbers. Its command "slow" takes longer than an
// executor waits for a guest call. A sleeper detects concurrent calls.
type sleeper struct {
	t     *testing.T
	sums  map[uint64]int64
	in    atomic.Int32
	slept *atomic.Int64
}

func (g *sleeper) enter() func() {
	if g.in.Add(1) != 1 {
		g.t.Error("two goroutines are in one guest")
	}
	return func() { g.in.Add(-1) }
}

func (g *sleeper) Load(_ uint32, h uint64, _ []byte) (bool, error) {
	defer g.enter()()
	g.sums[h] = 0
	return true, nil
}

func (g *sleeper) Apply(h uint64, frames []byte) error {
	defer g.enter()()
	r := abi.NewReader(frames)
	for {
		f, ok, err := r.Next()
		if err != nil || !ok {
			return err
		}
		ev, err := abi.DecodeInputEvent(f.Body)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(ev.Payload), 10, 64)
		if err != nil {
			return err
		}
		g.sums[h] += n
	}
}

func (g *sleeper) Handle(h uint64, frames []byte, env Env) ([]byte, error) {
	defer g.enter()()
	var req abi.Request
	if err := abi.ParseRequest(&req, frames); err != nil {
		return nil, err
	}
	if string(req.Name) == "slow" {
		if g.slept.Add(1)%2 == 0 && env.Long != nil { // every second call preempts itself; the watchdog detects the others
			env.Long.Preempt()
		}
		time.Sleep(20 * time.Millisecond)
	}
	n, err := strconv.ParseInt(string(req.Payload), 10, 64)
	if err != nil {
		return nil, err
	}
	g.sums[h] += n
	out := abi.AppendEvent(nil, "added", req.Payload)
	return abi.AppendReply(out, strconv.AppendInt(nil, g.sums[h], 10)), nil
}

func (g *sleeper) Query(h uint64, _ []byte, _ Env) ([]byte, error) {
	defer g.enter()()
	return abi.AppendReply(nil, strconv.AppendInt(nil, g.sums[h], 10)), nil
}

func (g *sleeper) Snapshot(h uint64) ([]byte, error) {
	defer g.enter()()
	return strconv.AppendInt(nil, g.sums[h], 10), nil
}

func (g *sleeper) Drop(h uint64) error {
	defer g.enter()()
	delete(g.sums, h)
	return nil
}

func (g *sleeper) Fuel() int64           { return 0 }
func (*sleeper) About(sharding.EntityID) {}
func (g *sleeper) Interrupt()            {}
func (g *sleeper) MemoryBytes() int64    { return 1 << 20 }
func (g *sleeper) Close() error          { return nil }

// committer is the log of a single node that commits in order, on its own
// goroutine.
type committer struct {
	exec *executor
	in   chan appliedEntry
	done chan struct{}

	mu      sync.Mutex
	records map[sharding.EntityID][]journal.Record
}

func (c *committer) Propose(s sharding.ShardID, fence sharding.Term, n uint64, data []byte) error {
	e, err := journal.DecodeEntry(data)
	if err != nil {
		return err
	}
	if e.Kind != journal.EntryRecords {
		c.in <- appliedEntry{Shard: s, Term: fence, Fence: fence, Proposal: n, Err: request.ErrNotApplied}
		return nil
	}
	c.mu.Lock()
	for b := e.Body; len(b) > 0; {
		raw, rest, err := journal.SplitRecord(b)
		if err != nil {
			panic(err)
		}
		var r journal.Record
		if err := r.Decode(raw); err != nil {
			panic(err)
		}
		c.records[r.Entity] = append(c.records[r.Entity], r)
		b = rest
	}
	c.mu.Unlock()
	c.in <- appliedEntry{Shard: s, Term: fence, Fence: fence, Proposal: n}
	return nil
}

func (c *committer) ReadIndex(s sharding.ShardID, token uint64) error {
	c.exec.ReadConfirmed(s, token)
	return nil
}

func (c *committer) Busy() bool { return false }

func (c *committer) run() {
	defer close(c.done)
	for a := range c.in {
		c.exec.NotifyApplied([]appliedEntry{a})
	}
}

func (c *committer) Read(_ context.Context, _ sharding.ShardID, id sharding.EntityID, _ journal.Sequence,
	fn func(*journal.Record, journal.Hash) error) error {
	c.mu.Lock()
	recs := append([]journal.Record(nil), c.records[id]...)
	c.mu.Unlock()
	var chain journal.Chain
	for i := range recs {
		if err := fn(&recs[i], chain.After(&recs[i])); err != nil {
			return err
		}
	}
	return nil
}

func (c *committer) ReadSince(context.Context, sharding.ShardID, sharding.EntityID, *journal.Snapshot, func(*journal.Record, journal.Hash) error) error {
	return nil
}

func (c *committer) Snapshot(context.Context, sharding.ShardID, sharding.EntityID, journal.SnapshotUse, journal.Sequence) (*journal.Snapshot, error) {
	return nil, nil // snapshots are rejected, which must not affect the executor
}

func (c *committer) Received(sharding.ShardID, sharding.EntityID, sharding.EntityID) (uint64, error) {
	return 0, nil
}

func (c *committer) IsAbsent(sharding.ShardID, sharding.EntityID) bool { return false }

func (c *committer) ReadRecent(ctx context.Context, shard sharding.ShardID, e sharding.EntityID, _, _ int, _ int64, _ func(int) error, fn func(*journal.Record, journal.Hash) error) (bool, error) {
	return false, c.Read(ctx, shard, e, 0, fn)
}

func (c *committer) PendingMessages(sharding.ShardID, sharding.EntityID) (n, asOf uint64, err error) {
	return 0, 0, nil
}

func (*committer) OpenRuns(sharding.ShardID, string) (uint64, error) { return 0, nil }

func (c *committer) TimerRoom(sharding.ShardID, sharding.EntityID, [][]byte) (has, added int) {
	return 0, 0
}

func (c *committer) MessageTotals(sharding.ShardID) journal.MessageTotals {
	return journal.MessageTotals{}
}

func (c *committer) DueTimers(context.Context, sharding.ShardID, int64, int, func(sharding.EntityID, string, int64) bool) ([]journal.Timer, int64, error) {
	return nil, math.MaxInt64, nil
}

type onlyType struct{ t *Type }

func (o onlyType) Lookup(string) *Type { return o.t }

// answers collects completed requests.
type answers struct {
	wg  sync.WaitGroup
	mu  sync.Mutex
	got []*request.Request
}

func (a *answers) Complete(r *request.Request) {
	a.mu.Lock()
	a.got = append(a.got, r)
	a.mu.Unlock()
	a.wg.Done()
}

// TestExecutorContinuesDuringSlowGuestCall runs an executor on real goroutines with slow
// guest calls. No guest is entered twice at a time, every request is answered
// once, each entity's replies add up in order, and other requests are answered
// during a slow call.
func TestExecutorContinuesDuringSlowGuestCall(t *testing.T) {
	var slept atomic.Int64
	log := &committer{in: make(chan appliedEntry, 1<<16), done: make(chan struct{}), records: map[sharding.EntityID][]journal.Record{}}
	typ := &Type{Name: "t", Instantiate: func(context.Context) (Guest, error) {
		time.Sleep(3 * time.Millisecond) // opening an instance is slow too
		return &sleeper{t: t, sums: map[uint64]int64{}, slept: &slept}, nil
	}}
	// An instance is full at 1 MiB, so every entity gets its own.
	exec := newExecutor(Options{Journal: log, Histories: log, Types: onlyType{typ}, InstanceBytes: 1 << 20}, nil)
	log.exec = exec
	go log.run()
	exec.LeaderChanged(1, 1, true)
	exec.NotifyApplied([]appliedEntry{{Shard: 1, Term: 1, NoOp: true}})
	for !exec.leads(1) {
		time.Sleep(time.Millisecond)
	}
	const entities, rounds = 6, 60
	var a answers
	for i := range rounds {
		var reqs []*request.Request
		for e := range entities {
			r := &request.Request{
				Entity: sharding.EntityID{Type: "t", ID: strconv.Itoa(e)}, Shard: 1, Name: "add", Payload: []byte("1"),
				ID: journal.CommandID(fmt.Sprintf("%d-%d", e, i)), ExpectedSequence: request.NoExpectation, Done: &a, Tag: uint64(i),
			}
			if e == 0 && i%10 == 0 {
				r.Name = "slow"
			}
			reqs = append(reqs, r)
		}
		a.wg.Add(len(reqs))
		exec.Submit(reqs)
	}
	a.wg.Wait()
	seen := map[string]uint64{}
	for _, r := range a.got {
		if r.Result.Err != nil {
			t.Fatalf("%s: %v", r.Entity, r.Result.Err)
		}
		if r.Tag != seen[r.Entity.ID] || string(r.Result.Payload) != strconv.FormatUint(r.Tag+1, 10) {
			t.Fatalf("%s answered round %d with %s, want round %d", r.Entity, r.Tag, r.Result.Payload, seen[r.Entity.ID])
		}
		seen[r.Entity.ID]++
	}
	if slept.Load() == 0 || exec.Stats().Preemptions == 0 {
		t.Fatalf("%d slow guest calls and %d preemptions: the test shows nothing", slept.Load(), exec.Stats().Preemptions)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := exec.Close(ctx); err != nil {
		t.Fatal(err)
	}
	close(log.in)
	<-log.done
}

// leads reports whether the executor leads a shard.
func (l *executor) leads(s sharding.ShardID) bool {
	var a answers
	a.wg.Add(1)
	l.Submit([]*request.Request{{Kind: request.Inspect, Entity: sharding.EntityID{Type: "t", ID: "x"}, Shard: s, Done: &a}})
	a.wg.Wait()
	return a.got[0].Result.Err == nil
}

// TestSubmitAfterCloseIsAnswered checks that requests to a closed executor are
// answered.
func TestSubmitAfterCloseIsAnswered(t *testing.T) {
	log := &committer{in: make(chan appliedEntry, 1), records: map[sharding.EntityID][]journal.Record{}}
	exec := newExecutor(Options{Journal: log, Histories: log, Types: onlyType{}}, nil)
	if err := exec.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var a answers
	a.wg.Add(1)
	exec.Submit([]*request.Request{{Shard: 1, Done: &a}})
	a.wg.Wait()
	if a.got[0].Result.Err != request.ErrStopped {
		t.Fatal(a.got[0].Result.Err)
	}
}
