package request

import (
	"context"
	"sync/atomic"
	"time"
)

// Processor counts the processor time of processes that were started for a
// call. It is safe for concurrent use.
type Processor struct{ spent atomic.Int64 }

// Spent is what was counted.
func (p *Processor) Spent() time.Duration { return time.Duration(p.spent.Load()) }

// processorKey is the context's key for a *Processor.
type processorKey struct{}

// WithProcessor has what a call starts counted.
func WithProcessor(ctx context.Context, p *Processor) context.Context {
	return context.WithValue(ctx, processorKey{}, p)
}

// Processed counts processor time for whoever asked for it, if anybody.
func Processed(ctx context.Context, spent time.Duration) {
	if p, ok := ctx.Value(processorKey{}).(*Processor); ok {
		p.spent.Add(int64(spent))
	}
}
