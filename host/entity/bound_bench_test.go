package entity

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/schema"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// fill loads entities into memory.
func (j *bench) fill(entities int) {
	reqs := make([]*request.Request, 0, 1024)
	for i := range entities {
		reqs = append(reqs, j.query(fmt.Sprintf("entity-%d", i)))
		if len(reqs) == cap(reqs) || i == entities-1 {
			j.turn(reqs)
			reqs = reqs[:0]
		}
	}
}

func (j *bench) query(id string) *request.Request {
	return &request.Request{Kind: request.Query, Name: "total", Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: j,
		Entity: sharding.EntityID{Type: "t", ID: id}}
}

// executorSteps returns the steps between which an executor checks its
// queues. Each step has as much work as its bound allows. make prepares a
// step and returns a function that performs it once.
func executorSteps(b *testing.B) []struct {
	name string
	make func() func()
} {
	mega := bytes.Repeat([]byte("a"), 1<<20)
	typ := &Type{Name: "t"}
	output := func(out []byte, mode abi.Mode) func() func() {
		return func() func() {
			var parsed abi.Output
			limits := abi.DefaultLimits()
			return func() {
				if err := abi.ParseOutput(&parsed, out, mode, &limits); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	return []struct {
		name string
		make func() func()
	}{
		{"take 2048 requests", func() func() {
			j := newBench()
			reqs := make([]*request.Request, 2048)
			for i := range reqs {
				reqs[i] = j.query(fmt.Sprintf("entity-%d", i))
			}
			return func() { j.core.submit(j.core.now, reqs) }
		}},
		{"one turn of an entity", func() func() {
			j := newBench()
			j.fill(1)
			reqs := make([]*request.Request, turnRequests)
			for i := range reqs {
				reqs[i] = j.query("entity-0")
			}
			return func() { j.turn(reqs) }
		}},
		{"check a payload until it is given away", func() func() {
			s, err := schema.Compile([]byte(`{"type":"string","pattern":"(\\p{L}*\\p{Greek}*)*x"}`), nil)
			if err != nil {
				b.Fatal(err)
			}
			typ.Forms = PayloadForms{Commands: map[string]*schema.Schema{"add": s}}
			check := typ.commandCheck(&request.Request{Name: "add", Payload: append(append([]byte{'"'}, mega...), '"')})
			return func() {
				if _, err := check.Do(func() bool { return false }); !errors.Is(err, request.ErrDeadline) {
					b.Fatal(err)
				}
			}
		}},
		{"suggest a name", func() func() {
			typ := &Type{TypeInputs: TypeInputs{Commands: map[string]bool{}}}
			for i := range 256 {
				typ.Commands[fmt.Sprintf("%060d", i)] = true
			}
			r := &request.Request{Name: string(bytes.Repeat([]byte("x"), 60))}
			return func() {
				if typ.refusesCommandName(r) == nil {
					b.Fatal("it is known")
				}
			}
		}},
		{"hash a command of 1 MiB", func() func() { return func() { journal.HashCommand(nil, "add", mega) } }},
		{"make input of 1 MiB", func() func() {
			return func() {
				commandFrame(nil, typ, 7, &request.Request{Name: "add", Payload: mega}, Env{})
			}
		}},
		{"read 400,000 frames", output(bytes.Repeat(abi.AppendPassivate(nil), 400_000), abi.HandleEvents)},
		{"read 128 events", output(bytes.Repeat(abi.AppendTag(abi.AppendEvent(nil, "added", mega[:1900]), mega[:60]), 128), abi.HandleEvents)},
		{"make a record of 1 MiB", func() func() {
			var builder recordBuilder
			out := &abi.Output{HasState: true, State: mega[:900_000], Reply: mega[:60_000]}
			return func() {
				builder.Begin(journal.Record{CommandID: "c", Reply: out.Reply})
				builder.Evolve(out, "state", true)
				builder.End()
			}
		}},
		{"find 128 schedules", func() func() {
			j := newBench()
			out := &abi.Output{}
			for range 128 {
				out.Timers = append(out.Timers, abi.Timer{Name: []byte("t"), Expression: []byte("59 23 29 2 0-6/7"), Zone: []byte("Europe/Berlin"), Command: []byte("c")})
			}
			return func() {
				if err := j.core.timers.Schedule(out, j.core.now.UnixNano(), false); err != nil && !errors.Is(err, timers.ErrSchedule) {
					b.Fatal(err)
				}
			}
		}},
		{"propose a snapshot of 1 MiB", func() func() {
			j := newBench()
			j.fill(1)
			e := j.core.residents.find(j.core.shards[worldShard], sharding.EntityID{Type: "t", ID: "entity-0"}, j.core.key(sharding.EntityID{Type: "t", ID: "entity-0"}))
			return func() { j.core.snapshotTaken(e, &guestCall{out: mega[:1_000_000]}) }
		}},
		{"look at deadlines of 4096 requests", func() func() {
			j := newBench()
			reqs := make([]*request.Request, 4096)
			for i := range reqs {
				reqs[i] = j.query("entity-0")
			}
			j.core.submit(j.core.now, reqs)
			return j.core.expire
		}},
		{"list 16384 quarantined entities", func() func() {
			j := newBench()
			j.fill(16384)
			for i := range 16384 {
				id := sharding.EntityID{Type: "t", ID: fmt.Sprintf("entity-%d", i)}
				e := j.core.residents.find(j.core.shards[worldShard], id, j.core.key(id))
				for range 3 {
					j.core.recordFault(e, nil, errTrap)
				}
			}
			turns := &coreTurns{core: j.core}
			return func() {
				if _, err := turns.ListQuarantined(QuarantineQuery{Shard: worldShard, Type: "t", Limit: 10}); err != nil {
					b.Fatal(err)
				}
			}
		}},
		{"let 1024 idle entities go", func() func() {
			j := newBench()
			j.fill(4096)
			return func() {
				j.core.now = j.core.now.Add(time.Hour)
				j.core.residents.passivateIdle()
			}
		}},
		{"give up a full instance", func() func() {
			j := newBench()
			j.fill(maxInstanceEntities + 1)
			in := j.core.residents.pools.All()[0]
			if in.Resident() != maxInstanceEntities {
				b.Fatalf("%d entities", in.Resident())
			}
			return func() { j.core.residents.closeInstance(in) }
		}},
		{"lose a shard of 100,000 entities", func() func() {
			j := newBench()
			j.fill(100_000)
			return func() { j.core.leaderChanged(worldShard, 2, false) }
		}},
	}
}

// BenchmarkExecutorStepsAtTheirBound runs each step once per iteration, with
// new data each time, and reports the longest duration. A request never waits
// longer than that for one step of the executor, apart from guest calls.
func BenchmarkExecutorStepsAtTheirBound(b *testing.B) {
	for _, step := range executorSteps(b) {
		b.Run(step.name, func(b *testing.B) {
			var longest time.Duration
			for b.Loop() {
				do := step.make()
				began := time.Now()
				do()
				longest = max(longest, time.Since(began))
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
}
