package host

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/host/traces"
)

// openTraces begins to make spans, where there is a collector that they go to.
func (n *Node) openTraces(ctx context.Context, opts *rpc.Options) (err error) {
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
	n.lifecycle.add("traces", n.routing.spans.Close) // after all that makes spans
	opts.Traces, err = n.routing.spans.Interceptor()
	return err
}

// timerSpans makes the spans of timers that fire; nil where none are made.
func (r *routing) timerSpans() timers.Spans {
	if r.spans == nil {
		return nil
	}
	return traces.NewTimers(r.spans.Tracer())
}

// traced is what carries requests out on this node, those whose traces are
// sampled in spans of their own.
func (r *routing) traced(on router.Local) router.Local {
	if r.spans == nil {
		return on
	}
	return traces.NewRequests(on, r.spans.Tracer())
}
