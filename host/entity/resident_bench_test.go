package entity

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/entity/resident"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// weightless is a guest whose states take no memory of the host.
type weightless struct{ counter }

func (g *weightless) Load(uint32, uint64, []byte) (bool, error) { return true, nil }
func (g *weightless) Drop(uint64) error                         { return nil }

func (g *weightless) Handle(uint64, []byte, Env) ([]byte, error) {
	g.out = abi.AppendEvent(g.out[:0], "added", []byte(`{"amount":1}`))
	g.out = abi.AppendReply(g.out, []byte(`{"total":1}`))
	return g.out, nil
}

// heap returns the reachable heap in bytes, after a garbage collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// crowd returns an executor with the given number of entities, each with the
// given number of commands. Ids and names look like those of real clients.
func crowd(entities, commands int) *bench {
	j := newBench()
	typ := &Type{Name: "counter", Instantiate: func(context.Context) (Guest, error) { return &weightless{}, nil }}
	j.core.opts.Types = oneType{typ}
	const batch = 256
	for n := 0; n < entities*commands; n += batch {
		var reqs []*request.Request
		for i := n; i < min(n+batch, entities*commands); i++ {
			reqs = append(reqs, &request.Request{
				Kind: request.Command, Name: "add", Shard: worldShard, ExpectedSequence: request.NoExpectation, Done: j, Payload: []byte(`{"amount":1}`),
				Entity: sharding.EntityID{Type: strings.Clone("counter"), ID: fmt.Sprintf("device-%08d", i%entities)},
				ID:     journal.CommandID(fmt.Sprintf("%032x", uint64(i)*0x9e3779b97f4a7c15)),
			})
		}
		j.turn(reqs)
	}
	return j
}

// TestEmptyInstancesAreClosed checks that passivated entities leave nothing in
// memory, and that their guest is closed.
func TestEmptyInstancesAreClosed(t *testing.T) {
	const entities = 1000
	j := crowd(entities, 1)
	var reqs []*request.Request
	for i := range entities {
		reqs = append(reqs, &request.Request{Kind: request.Passivate, Shard: worldShard, Done: j, Entity: sharding.EntityID{Type: "counter", ID: fmt.Sprintf("device-%08d", i)}})
	}
	j.turn(reqs)
	if n := j.core.residents.cache.Count(); n != 0 || j.core.residents.known != 0 {
		t.Fatalf("%d entities are in memory, %d known", n, j.core.residents.known)
	}
	for j.core.residents.sweepAt != 0 {
		j.core.now = time.Unix(0, j.core.residents.sweepAt)
		j.core.residents.passivateIdle()
	}
	if n, _ := j.core.residents.usage(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}

// BenchmarkResident: one operation is one entity in memory. It reports the heap
// that the entity takes in addition to its guest's state.
func BenchmarkResident(b *testing.B) {
	for _, commands := range []int{1, 5, 20} {
		b.Run(fmt.Sprintf("commands=%d", commands), func(b *testing.B) {
			const entities = 50_000
			for b.Loop() {
				before := heap()
				j := crowd(entities, commands)
				b.ReportMetric(float64(heap()-before)/entities, "heap/entity")
				if j.core.residents.cache.Count() != entities {
					b.Fatalf("%d entities are resident", j.core.residents.cache.Count())
				}
				j.core.now = j.core.now.Add(j.core.opts.HibernateAfter + resident.TickEvery)
				for j.core.residents.sweepAt <= j.core.now.UnixNano() {
					j.core.residents.passivateIdle()
					j.core.now = j.core.now.Add(1)
				}
				pages := j.core.residents.hibernated.Bytes()
				b.ReportMetric(float64(heap()-before)/entities, "heap/dormant")
				b.ReportMetric(float64(pages)/entities, "pages/dormant")
				for j.core.residents.sweepAt != 0 {
					j.core.now = j.core.now.Add(time.Hour)
					j.core.residents.passivateIdle()
				}
				b.ReportMetric(float64(heap()-before)/entities, "heap/passive")
				runtime.KeepAlive(j)
			}
		})
	}
}
