package host_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/support/testkit"
)

const verifyEntities, verifyEvents = 20, 10_000

// startVerify runs a node with a module and 20 entities of 10,000 events each.
// It returns a function that verifies all of them.
func startVerify(b *testing.B, wasm []byte, set func(*config.Config)) (c *client.Client, verify func(context.Context) error) {
	b.Helper()
	ids := entityIDs(verifyEntities)
	n, c := startBenchWith(b, b.TempDir(), set)
	b.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	up, err := c.Upload(b.Context(), wasm, true)
	if err != nil {
		b.Fatal(err)
	}
	addEvents(b, c, "counter", ids, verifyEvents)
	modules := modulev1connect.NewModuleServiceClient(http.DefaultClient, "http://"+n.Addr())
	request := &modulev1.VerifyModuleRequest{EntityType: "counter", Digest: up.Digest, Scope: &modulev1.VerifyModuleRequest_All{All: true}}
	return c, func(ctx context.Context) error {
		stream, err := modules.VerifyModule(ctx, connect.NewRequest(request))
		if err != nil {
			return err
		}
		var last *modulev1.VerifyModuleResponse
		for stream.Receive() {
			last = stream.Msg()
		}
		err = errors.Join(stream.Err(), stream.Close())
		if err == nil && (last.GetEvents() < verifyEntities*verifyEvents || last.GetDifferingEntities()+last.GetFaultyEntities() != 0) {
			err = fmt.Errorf("it tells %v", last)
		}
		return err
	}
}

// BenchmarkVerify replays histories with the active module, without a rate
// limit. Each event is replayed twice, and counted once.
func BenchmarkVerify(b *testing.B) {
	for _, source := range []struct {
		name  string
		build func(testing.TB) []byte
	}{
		{"go", func(t testing.TB) []byte { return testkit.BuildExample(t, "counter") }},
		{"c", func(t testing.TB) []byte { return testkit.BuildSource(t, "examples/wasm/counter-c/counter.c") }},
	} {
		b.Run(source.name, func(b *testing.B) {
			_, verify := startVerify(b, source.build(b), func(c *config.Config) { c.VerifyRate = 0 })
			b.ResetTimer()
			before := cpuTime(b)
			for range b.N {
				if err := verify(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			all := float64(b.N * verifyEntities * verifyEvents)
			b.ReportMetric(all/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(all/(cpuTime(b)-before).Seconds(), "events/cpu-s")
		})
	}
}

// BenchmarkBesideVerify sends 2,000 commands per second from 8 callers for some
// seconds, alternately with and without a verification at the configured rate.
// Run it with 1x.
func BenchmarkBesideVerify(b *testing.B) {
	const callers, every, turn, turns = 8, 4 * time.Millisecond, 4 * time.Second, 8
	c, verify := startVerify(b, testkit.BuildExample(b, "counter"), func(*config.Config) {})
	send := func(until time.Time) (took []time.Duration) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				var own []time.Duration
				for at := time.Now(); at.Before(until); at = at.Add(every) {
					time.Sleep(time.Until(at))
					if _, err := c.Send(b.Context(), client.Command{EntityType: "counter", EntityID: fmt.Sprint("live", i), Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
						b.Error(err)
						return
					}
					own = append(own, time.Since(at)) // since the command was due
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, own...)
			})
		}
		all.Wait()
		return took
	}
	p99 := func(took []time.Duration) float64 {
		slices.Sort(took)
		return float64(took[len(took)*99/100].Microseconds())
	}
	send(time.Now().Add(turn))
	b.ResetTimer()
	for range b.N {
		var alone, beside []time.Duration
		for i := range turns {
			if i%2 == 0 {
				alone = append(alone, send(time.Now().Add(turn))...)
				continue
			}
			ctx, cancel := context.WithCancel(b.Context())
			var replaying sync.WaitGroup
			replaying.Go(func() {
				for ctx.Err() == nil {
					if err := verify(ctx); err != nil && ctx.Err() == nil {
						b.Error(err)
						return
					}
				}
			})
			beside = append(beside, send(time.Now().Add(turn))...)
			cancel()
			replaying.Wait()
		}
		b.ReportMetric(p99(alone), "p99-alone-us")
		b.ReportMetric(p99(beside), "p99-beside-us")
		b.ReportMetric(p99(beside)/p99(alone), "ratio")
	}
}
