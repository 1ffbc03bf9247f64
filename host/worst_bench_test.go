package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/support/testkit"
)

// worstCommands are commands of a noisy neighbor: each reaches one limit,
// and the last command reaches all of them.
var worstCommands = []struct {
	name string
	load map[string]any
}{
	{"items", map[string]any{"items": items(64 << 10)}},
	{"payload", map[string]any{"pad": strings.Repeat("x", 1000<<10)}},
	{"events", map[string]any{"events": 128, "bytes": 1900}},
	{"sends and timers", map[string]any{"sends": 64, "timers": 64}},
	{"reply", map[string]any{"reply": 250 << 10}},
	{"fuel", map[string]any{"spin": 20_000_000}},
	{"all", map[string]any{"items": items(32 << 10), "pad": strings.Repeat("x", 900<<10), "events": 128, "bytes": 1900, "sends": 64, "timers": 64, "reply": 200 << 10, "spin": 5_000_000}},
}

// items returns about the given number of bytes of JSON.
func items(bytes int) json.RawMessage {
	one := `{"sku":"sku-0000","quantity":7}`
	n := bytes / (len(one) + 1)
	return json.RawMessage("[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]")
}

// BenchmarkBesideTheWorstCommand sends commands to one entity while four
// other entities receive commands at their limits on the same executor. It
// reports the longest time, and how many of the neighbors' commands were
// completed and rejected. The goal is 100 ms on an otherwise idle machine.
func BenchmarkBesideTheWorstCommand(b *testing.B) {
	n, c := startBenchWith(b, b.TempDir(), func(cfg *config.Config) { cfg.Executors = 1 })
	b.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	for _, wasm := range [][]byte{testkit.BuildExample(b, "counter"), testkit.BuildGuest(b, "tests/e2e/floods/guest")} {
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
		_, err := c.Upload(ctx, wasm, true)
		cancel()
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("alone", func(b *testing.B) { beside(b, c, "", nil) })
	for _, worst := range worstCommands {
		b.Run(strings.ReplaceAll(worst.name, " ", "-"), func(b *testing.B) {
			data, err := json.Marshal(worst.load)
			if err != nil {
				b.Fatal(err)
			}
			beside(b, c, worst.name, data)
		})
	}
}

func beside(b *testing.B, c *client.Client, name string, data []byte) {
	ctx, cancel := context.WithCancel(b.Context())
	var mu sync.Mutex
	var carried, refused int
	var neighbours sync.WaitGroup
	for i := range 4 {
		neighbours.Go(func() {
			for data != nil && ctx.Err() == nil {
				_, err := c.Send(ctx, client.Command{EntityType: "heavy", EntityID: fmt.Sprint(name, i), Name: "load", Data: data})
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				if err == nil {
					carried++
				} else if refused++; refused == 1 {
					b.Log(err)
				}
				mu.Unlock()
			}
		})
	}
	if data != nil {
		time.Sleep(time.Second) // until each caller has sent some
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := c.Send(b.Context(), client.Command{EntityType: "counter", EntityID: "k", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	cancel()
	neighbours.Wait()
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "ms-median")
	b.ReportMetric(ms(took[len(took)*99/100]), "ms-p99")
	b.ReportMetric(ms(took[len(took)-1]), "ms-worst")
	b.ReportMetric(float64(carried), "worst-carried")
	b.ReportMetric(float64(refused), "worst-refused")
}
