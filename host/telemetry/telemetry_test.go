package telemetry_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/telemetry"
)

func TestLoggerFormats(t *testing.T) {
	var out bytes.Buffer
	telemetry.NewLogger(&out, slog.LevelInfo, config.LogAuto).Info("ready", "shard_id", 3)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["msg"] != "ready" || line["shard_id"] != 3.0 {
		t.Errorf("auto to a buffer is not JSON: %q, %v", out.String(), err)
	}
	out.Reset()
	telemetry.NewLogger(&out, slog.LevelInfo, config.LogText).Info("ready", "shard_id", 3)
	if !strings.HasSuffix(out.String(), "msg=ready shard_id=3\n") {
		t.Errorf("text: %q", out.String())
	}
	out.Reset()
	telemetry.NewLogger(&out, slog.LevelWarn, config.LogText).Info("ready")
	if out.Len() != 0 {
		t.Errorf("below the level: %q", out.String())
	}
}

func TestHandlerServesProcessAndOwnMetrics(t *testing.T) {
	r := telemetry.NewRegistry(telemetry.Build{Version: "v9", Commit: "c", Go: "go1"})
	latency := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "hostd_probe_seconds", Help: "A probe.", Buckets: telemetry.LatencyBuckets()})
	r.MustRegister(latency)
	latency.Observe(15e-6)

	rec := httptest.NewRecorder()
	telemetry.Handler(r, slog.New(slog.DiscardHandler)).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, _ := io.ReadAll(rec.Body)
	for _, want := range []string{
		`hostd_build_info{goversion="go1",revision="c",version="v9"} 1`, "process_resident_memory_bytes ", "go_goroutines ",
		`hostd_probe_seconds_bucket{le="1e-05"} 0`, `hostd_probe_seconds_bucket{le="2e-05"} 1`,
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%q is missing", want)
		}
	}
}

func TestBucketBoundsIncrease(t *testing.T) {
	for name, b := range map[string][]float64{"latency": telemetry.LatencyBuckets(), "size": telemetry.SizeBuckets()} {
		if !slices.IsSorted(b) || len(slices.Compact(slices.Clone(b))) != len(b) {
			t.Errorf("%s buckets: %v", name, b)
		}
	}
}
