package host

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/host/traces"
)

// openTraces starts to make spans if a trace collector is configured.
func (n *Node) openTraces(ctx context.Context, opts *edge.Options) (err error) {
	url := n.cfg.TracesURL()
	if url == "" {
		return nil
	}
	n.routing.spans, err = traces.NewProvider(ctx, traces.ProviderOptions{
		URL: url, HeadersFile: n.cfg.OTLPHeadersFile, Ratio: n.cfg.TraceRatio, TrustRemote: n.cfg.TraceTrustRemote,
		Node: string(n.id.Node), Version: telemetry.Version(), Logger: n.logger, Registerer: n.metrics.registry,
	})
	if err != nil {
		return fmt.Errorf("traces: %w", err)
	}
	n.lifecycle.add("traces", n.routing.spans.Close) // closed after all parts that make spans
	opts.Traces, err = n.routing.spans.Interceptor()
	return err
}

// timerSpans returns the source of spans for timers that fire, or nil if
// tracing is off.
func (r *routing) timerSpans() timers.Spans {
	if r.spans == nil {
		return nil
	}
	return traces.NewTimers(r.spans.Tracer())
}

// withTraces wraps on so that requests with a sampled trace get a span of their own
// on this node.
func (r *routing) withTraces(on router.Local) router.Local {
	if r.spans == nil {
		return on
	}
	return traces.NewRequests(on, r.spans.Tracer())
}
