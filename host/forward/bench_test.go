package forward

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// window limits the number of outstanding requests.
type window struct {
	free chan *request.Request
	all  sync.WaitGroup
}

func (w *window) Complete(q *request.Request) {
	w.free <- q
	w.all.Done()
}

// BenchmarkCommand sends one command to a node and back: "local" without a
// connection and "forwarded" over loopback, with both sides in this process.
// The node is an in-memory executor that answers at once.
func BenchmarkCommand(b *testing.B) {
	w := rpctest.New()
	defer w.Close()
	n2 := newSite(b, "n2", w, newLeads("n2"))
	c := newTestClient(b, newNetwork(b, n2))
	for _, outstanding := range []int{1, 16, 64, 256, 1024} {
		for _, way := range []struct {
			name string
			to   router.Local
		}{{"local", n2.gate}, {"forwarded", toNode{c, "n2"}}} {
			b.Run(fmt.Sprintf("%s/outstanding=%d", way.name, outstanding), func(b *testing.B) {
				run := &window{free: make(chan *request.Request, outstanding)}
				for i := range outstanding {
					e := sharding.EntityID{Type: rpctest.Counter, ID: fmt.Sprintf("entity-%d", i)}
					run.free <- &request.Request{
						Kind: request.Command, Entity: e, Name: "echo", Payload: []byte(`{"amount":3}`),
						Shard: sharding.ShardOf(e, testShards), ID: commandID(), ExpectedSequence: request.NoExpectation, Done: run,
					}
				}
				one := make([]*request.Request, 1)
				b.ReportAllocs()
				b.ResetTimer()
				before := cpuTime(b)
				for range b.N {
					one[0] = <-run.free
					run.all.Add(1)
					way.to.Submit(one)
				}
				run.all.Wait()
				b.StopTimer()
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e3, "cpu-us/op")
			})
		}
	}
}

func cpuTime(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
