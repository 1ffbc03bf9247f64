package host_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/support/testkit"
)

// BenchmarkRollback checks 10,000 entities written by another module, with 20
// events each, as a rollback does before it decides. The counter in Go replays
// all of them.
func BenchmarkRollback(b *testing.B) {
	const entities, events = 10_000, 20
	n, c := startBenchWith(b, b.TempDir(), func(*config.Config) {})
	b.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	wasm := testkit.BuildExample(b, "counter")
	one, err := c.Upload(b.Context(), wasm, true)
	if err != nil {
		b.Fatal(err)
	}
	// The same module with an additional custom section.
	if _, err := c.Upload(b.Context(), append(wasm[:len(wasm):len(wasm)], 0, 4, 3, 't', 'w', 'o'), true); err != nil {
		b.Fatal(err)
	}
	ids := entityIDs(entities)
	addEvents(b, c, "counter", ids, events)
	modules := modulev1connect.NewModuleServiceClient(http.DefaultClient, "http://"+n.Addr())
	b.ResetTimer()
	before := cpuTime(b)
	for range b.N {
		res, err := modules.CheckCompatibility(b.Context(), connect.NewRequest(&modulev1.CheckCompatibilityRequest{EntityType: "counter", Digest: one.Digest, ExcludeWrittenBy: []string{one.Digest}}))
		if err != nil || res.Msg.GetEntities() != entities || res.Msg.GetFaultyEntities() > 0 || res.Msg.GetUncheckedShards() > 0 {
			b.Fatalf("it tells %v, %v", res, err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
}
