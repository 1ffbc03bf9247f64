package request

import (
	"context"
	"sync/atomic"
	"time"
)

// Processor counts the processor time of processes that were started for a call.
// It is safe for concurrent use.
type Processor struct{ spent atomic.Int64 }

// Spent returns the counted time.
func (p *Processor) Spent() time.Duration { return time.Duration(p.spent.Load()) }

// processorKey is the context key of a *Processor.
type processorKey struct{}

// WithProcessor attributes to p the processor time of processes that a call with
// the returned context starts.
func WithProcessor(ctx context.Context, p *Processor) context.Context {
	return context.WithValue(ctx, processorKey{}, p)
}

// AddProcessorTime adds processor time to the context's Processor, if it has one.
func AddProcessorTime(ctx context.Context, spent time.Duration) {
	if p, ok := ctx.Value(processorKey{}).(*Processor); ok {
		p.spent.Add(int64(spent))
	}
}
