package entity

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// counter is a guest that costs next to nothing, so that a benchmark measures
// the executor's own work.
type counter struct {
	sums map[uint64]int64
	out  []byte
}

func (g *counter) Load(_ uint32, h uint64, _ []byte) (bool, error) { g.sums[h] = 0; return true, nil }
func (g *counter) Apply(h uint64, _ []byte) error                  { g.sums[h]++; return nil }
func (g *counter) Fuel() int64                                     { return 900 }
func (*counter) About(sharding.EntityID)                           {}
func (g *counter) Interrupt()                                      {}
func (g *counter) Drop(h uint64) error                             { delete(g.sums, h); return nil }
func (g *counter) Snapshot(h uint64) ([]byte, error)               { return []byte{byte(g.sums[h])}, nil }
func (g *counter) MemoryBytes() int64                              { return 1 << 20 }
func (g *counter) Close() error                                    { return nil }

func (g *counter) Handle(h uint64, _ []byte, _ Env) ([]byte, error) {
	g.sums[h]++
	g.out = abi.AppendEvent(g.out[:0], "added", []byte(`{"amount":1}`))
	g.out = abi.AppendReply(g.out, []byte(`{"total":1}`))
	return g.out, nil
}

func (g *counter) Query(uint64, []byte, Env) ([]byte, error) {
	g.out = abi.AppendReply(g.out[:0], []byte(`{"total":1}`))
	return g.out, nil
}

// bench is a journal that commits its proposals when the driver calls turn, and
// does not keep them.
type bench struct {
	core    *core
	flights []flight
	rounds  []uint64
	done    int
}

func (j *bench) Call(v *guestCall) bool { v.Exec(nil); return true }

func (j *bench) Propose(_ sharding.ShardID, fence sharding.Term, n uint64, _ []byte) error {
	j.flights = append(j.flights, flight{term: fence, proposal: n})
	return nil
}

func (j *bench) ReadIndex(_ sharding.ShardID, token uint64) error {
	j.rounds = append(j.rounds, token)
	return nil
}

func (j *bench) Busy() bool                { return false }
func (j *bench) Complete(*request.Request) { j.done++ }

func (j *bench) existing(*alwaysOnScan) {}

func (j *bench) lookUp(q *inquiry) { j.core.finishInquiry(q) }

// noTimers is a journal without timers.
type noTimers struct{}

func (noTimers) DueTimers(context.Context, sharding.ShardID, int64, int, func(sharding.EntityID, string, int64) bool) ([]journal.Timer, int64, error) {
	return nil, math.MaxInt64, nil
}

func (j *bench) scan(t *timers.Scan) {
	t.Do(context.Background(), noTimers{})
	j.core.timers.OnScan(t)
}

func (j *bench) Received(sharding.ShardID, sharding.EntityID, sharding.EntityID) (uint64, error) {
	return 0, nil
}

func (j *bench) IsAbsent(sharding.ShardID, sharding.EntityID) bool { return false }

func (j *bench) ReadRecent(ctx context.Context, shard sharding.ShardID, e sharding.EntityID, _, _ int, _ int64, _ func(int) error, fn func(*journal.Record, journal.Hash) error) (bool, error) {
	return false, j.Read(ctx, shard, e, 0, fn)
}

func (j *bench) PendingMessages(sharding.ShardID, sharding.EntityID) (n, asOf uint64, err error) {
	return 0, 0, nil
}

func (*bench) OpenRuns(sharding.ShardID, string) (uint64, error) { return 0, nil }

func (j *bench) TimerRoom(sharding.ShardID, sharding.EntityID, [][]byte) (has, added int) {
	return 0, 0
}

func (j *bench) MessageTotals(sharding.ShardID) journal.MessageTotals { return journal.MessageTotals{} }

func (j *bench) DueTimers(context.Context, sharding.ShardID, int64, int, func(sharding.EntityID, string, int64) bool) ([]journal.Timer, int64, error) {
	return nil, math.MaxInt64, nil
}

func (j *bench) start(l *load) { j.core.onChunk(l, &historyChunk{Last: true}) }

func (j *bench) Read(context.Context, sharding.ShardID, sharding.EntityID, journal.Sequence,
	func(*journal.Record, journal.Hash) error) error {
	return nil
}

func (j *bench) ReadSince(context.Context, sharding.ShardID, sharding.EntityID, *journal.Snapshot, func(*journal.Record, journal.Hash) error) error {
	return nil
}

func (j *bench) Snapshot(context.Context, sharding.ShardID, sharding.EntityID, journal.SnapshotUse, journal.Sequence) (*journal.Snapshot, error) {
	return nil, nil
}

// turn passes requests through the core and the log.
func (j *bench) turn(reqs []*request.Request) {
	c := j.core
	c.submit(c.now, reqs)
	c.runTurns()
	c.endTurn()
	for _, f := range j.flights {
		c.event(&coreEvent{Kind: eventProposalDone, Shard: worldShard, Term: f.term, Number: f.proposal})
	}
	for _, r := range j.rounds {
		c.event(&coreEvent{Kind: eventReadConfirmed, Shard: worldShard, Number: r})
	}
	j.flights, j.rounds = j.flights[:0], j.rounds[:0]
}

func newBench() *bench {
	j := &bench{}
	typ := &Type{Name: "t", Instantiate: func(context.Context) (Guest, error) {
		return &counter{sums: map[uint64]int64{}}, nil
	}}
	j.core = newCore(Options{Journal: j, Histories: j, Types: oneType{typ}}, j)
	j.core.now = time.Unix(1_700_000_000, 0)
	j.core.event(&coreEvent{Kind: eventLeaderChanged, Shard: worldShard, Term: 1, Self: true})
	j.core.event(&coreEvent{Kind: eventTermStarted, Shard: worldShard, Term: 1})
	return j
}

// BenchmarkCommand: one operation is one command, 16 per turn, over 64 resident
// entities.
func BenchmarkCommand(b *testing.B) {
	benchmarkLane(b, func(r *request.Request, n int) {
		r.Kind, r.Name, r.ID = request.Command, "add", journal.CommandID(fmt.Sprintf("01890a5d-ac96-774b-bcce-%012d", n))
	})
}

// BenchmarkQuery: one operation is one query, 16 per turn.
func BenchmarkQuery(b *testing.B) {
	benchmarkLane(b, func(r *request.Request, _ int) { r.Kind, r.Name = request.Query, "total" })
}

func benchmarkLane(b *testing.B, fill func(*request.Request, int)) {
	const batch, entities = 16, 64
	j := newBench()
	reqs := make([]*request.Request, batch)
	ids := make([]sharding.EntityID, entities)
	for i := range ids {
		ids[i] = sharding.EntityID{Type: "t", ID: fmt.Sprintf("entity-%d", i)}
	}
	for i := range reqs {
		reqs[i] = &request.Request{Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: j, Payload: []byte(`{"amount":1}`)}
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n%batch == 0 && n > 0 {
			j.turn(reqs)
		}
		r := reqs[n%batch]
		r.Entity, r.Result = ids[n%entities], request.Result{}
		fill(r, n)
		n++
	}
	if want := (n - 1) / batch * batch; j.done != want {
		b.Fatalf("%d of %d requests were answered", j.done, want)
	}
}

type oneType struct{ t *Type }

func (o oneType) Lookup(string) *Type { return o.t }
