// Package telemetry creates a node's logger and its metrics registry. The
// metrics are declared next to the code that they measure. This package makes
// them uniform, and provides a Histogram for hot paths, where an observation
// needs two atomic additions and no allocation. A Histogram is served both
// as a classic histogram, so that dashboards can compare releases, and as a
// native histogram with precise quantiles. The package never reads
// configuration files, has no global state and starts no goroutine.
package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/term"

	"github.com/hostd/hostd/host/config"
)

// NewLogger returns a logger that writes lines of at least the given level to
// w, unless its Levels are changed. With config.LogAuto it writes text if w is
// a terminal, and JSON otherwise.
func NewLogger(w io.Writer, level slog.Level, format config.LogFormat) *slog.Logger {
	levels := NewLevels(level, nil)
	opts := &slog.HandlerOptions{Level: slog.LevelDebug}
	if format == config.LogText || format == config.LogAuto && isTerminal(w) {
		return slog.New(levels.Handler(slog.NewTextHandler(w, opts)))
	}
	return slog.New(levels.Handler(slog.NewJSONHandler(w, opts)))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// NewRegistry returns a registry with the metrics of the process and of the Go
// runtime, and with hostd_build_info, whose labels describe the build.
func NewRegistry(b Build) *prometheus.Registry {
	r := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "hostd_build_info", Help: "Build information as labels: release, commit and Go version; always 1.",
	}, []string{"version", "revision", "goversion"})
	build.WithLabelValues(b.Version, b.Commit, b.Go).Set(1)
	r.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		build,
	)
	return r
}

// Handler serves the registry in the Prometheus text format, or in the
// OpenMetrics or binary format if the client asks for it. At most four scrapes
// run concurrently. A metric that cannot be collected is left out and counted.
func Handler(r *prometheus.Registry, logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            r,
		MaxRequestsInFlight: 4,
		EnableOpenMetrics:   true,
	})
}

// LatencyBuckets returns upper bounds for latencies in seconds, from a
// microsecond to 10 seconds, with three per decade.
func LatencyBuckets() []float64 {
	return []float64{
		1e-6, 2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1, 2, 5, 10,
	}
}

// SizeBuckets returns upper bounds in bytes from 64 B to 4 MiB, each four times
// the previous one.
func SizeBuckets() []float64 { return prometheus.ExponentialBuckets(64, 4, 9) }
