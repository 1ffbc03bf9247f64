package router

import (
	"context"
	"fmt"
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// instant completes requests at once, after the part of a shard router's work
// that comes before an executor.
type instant struct{ shards uint32 }

func (l instant) Submit(reqs []*request.Request) {
	for _, q := range reqs {
		q.Shard = sharding.ShardOf(q.Entity, l.shards)
		q.Result = request.Result{}
		q.Done.Complete(q)
	}
}

// alone leads every shard.
type alone struct{}

func (alone) Leader(sharding.ShardID) (sharding.NodeID, bool, bool) { return "n1", true, true }
func (alone) Candidates(sharding.ShardID) []sharding.NodeID         { return []sharding.NodeID{"n1"} }
func (alone) Missing(sharding.ShardID) sharding.Missing             { return sharding.Missing{} }
func (alone) Quorum(sharding.ShardID) bool                          { return true }
func (alone) StopReason(sharding.ShardID) sharding.StopReason       { return 0 }
func (alone) Changed() <-chan struct{}                              { return nil }

type counted struct{ n int }

func (c *counted) Complete(*request.Request) { c.n++ }

// BenchmarkSubmit measures what the router adds to a request that runs on this
// node. "direct" is the same without the router.
func BenchmarkSubmit(b *testing.B) {
	const shards, batch = 256, 16
	local := instant{shards}
	r, err := New(Options{Self: "n1", Shards: shards, Local: local, Leaders: alone{}})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close(context.Background())
	for _, c := range []struct {
		name string
		to   Local
	}{{"direct", local}, {"routed", r}} {
		b.Run(c.name, func(b *testing.B) {
			var done counted
			reqs := make([]*request.Request, batch)
			for i := range reqs {
				reqs[i] = &request.Request{
					Kind: request.Command, Entity: sharding.EntityID{Type: "counter", ID: fmt.Sprintf("entity-%d", i)},
					ID: "0123456789abcdef0123456789abcdef", Payload: []byte(`{"amount":3}`), Done: &done,
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				c.to.Submit(reqs)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/request")
		})
	}
}
