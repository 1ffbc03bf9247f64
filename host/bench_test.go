package host_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/support/testkit"
	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time used by the process, all threads together.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startBenchOn runs a node on a directory. The caller must stop it.
func startBenchOn(b *testing.B, dir string) (*host.Node, *client.Client) {
	b.Helper()
	return startBenchWith(b, dir, func(*config.Config) {})
}

// startBenchWith is startBenchOn with a changed configuration.
func startBenchWith(b *testing.B, dir string, set func(*config.Config)) (*host.Node, *client.Client) {
	b.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.Admin = dir, "127.0.0.1:0", config.AdminFull
	set(&cfg)
	n, err := host.Start(b.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	for !n.Ready() {
		time.Sleep(time.Millisecond)
	}
	c, err := client.Dial("http://" + n.Addr())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return n, c
}

// startBench runs a node with an active counter module.
func startBench(b *testing.B) *client.Client {
	b.Helper()
	n, c := startBenchOn(b, b.TempDir())
	b.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	if _, err := c.Upload(b.Context(), testkit.BuildExample(b, "counter"), true); err != nil {
		b.Fatal(err)
	}
	return c
}

func entityIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = "k" + strconv.Itoa(i)
	}
	return ids
}

// report adds throughput and processor time per operation to the results.
func report(b *testing.B, cpu time.Duration) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
	b.ReportMetric(float64(cpu)/float64(b.N)/1e3, "cpu-us/op")
}

// BenchmarkUnary sends durable commands from 64 callers, each with one command
// in flight. Node, clients and guest share the process.
func BenchmarkUnary(b *testing.B) {
	c, ids := startBench(b), entityIDs(1000)
	var next atomic.Int64
	callers := func() {
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for {
					i := int(next.Add(-1))
					if i < 0 {
						return
					}
					_, err := c.Send(b.Context(), client.Command{EntityType: "counter", EntityID: ids[i%len(ids)], Name: "add", Data: []byte(`{"amount":1}`)})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	next.Store(2000)
	callers()
	next.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime(b)
	callers()
	report(b, cpuTime(b)-before)
}

// BenchmarkStream sends durable commands over one stream with 256 commands
// in flight. Node, client and guest share the process.
func BenchmarkStream(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run("keys="+strconv.Itoa(keys), func(b *testing.B) {
			c, ids := startBench(b), entityIDs(keys)
			s := c.Stream(client.StreamOptions{})
			defer s.Close(b.Context())
			var left sync.WaitGroup
			done := func(_ client.Reply, err error) {
				if err != nil {
					b.Error(err)
				}
				left.Done()
			}
			payload := []byte(`{"amount":1}`)
			send := func(n int) {
				left.Add(n)
				for i := range n {
					if err := s.Send(b.Context(), client.Command{EntityType: "counter", EntityID: ids[i%keys], Name: "add", Data: payload}, done); err != nil {
						b.Fatal(err)
					}
				}
				left.Wait()
			}
			send(2 * keys)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			send(b.N)
			report(b, cpuTime(b)-before)
		})
	}
}

// addEvents sends commands to the counters in turn, until each has the given
// number of events.
func addEvents(b *testing.B, c *client.Client, entityType string, ids []string, events int) {
	b.Helper()
	s := c.Stream(client.StreamOptions{Outstanding: 1024})
	for i := range len(ids) * events {
		cmd := client.Command{EntityType: entityType, EntityID: ids[i%len(ids)], Name: "add", Data: []byte(`{"amount":1}`)}
		if err := s.Send(b.Context(), cmd, func(_ client.Reply, err error) {
			if err != nil {
				b.Error("add "+strconv.Itoa(i), err)
			}
		}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkActivation queries entities of 10,000 events right after the node
// has started, so that each is replayed from its first event. Run it with at
// most 20x.
func BenchmarkActivation(b *testing.B) {
	const entities, events = 20, 10_000
	dir, ids := b.TempDir(), entityIDs(entities)
	n, c := startBenchOn(b, dir)
	if _, err := c.Upload(b.Context(), testkit.BuildExample(b, "counter"), true); err != nil {
		b.Fatal(err)
	}
	addEvents(b, c, "counter", ids, events)
	if err := n.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	n, c = startBenchOn(b, dir)
	defer n.Stop(b.Context())
	if _, err := c.Query(b.Context(), client.Query{EntityType: "counter", EntityID: "warm", Name: "total"}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	before := cpuTime(b)
	for i := range b.N {
		a, err := c.Query(b.Context(), client.Query{EntityType: "counter", EntityID: ids[i%entities], Name: "total"})
		if err != nil || a.Sequence != events {
			b.Fatal(a.Sequence, err)
		}
	}
	report(b, cpuTime(b)-before)
}
