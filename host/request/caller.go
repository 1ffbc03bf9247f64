package request

import (
	"context"
	"time"
)

// LeaderPatience is how long a leader is awaited for a caller of whose request
// nothing has been done: an election is over by then, or there is no majority.
const LeaderPatience = 800 * time.Millisecond

// callerKey is the context's key for HasCaller.
type callerKey struct{}

// WithCaller marks the context of a call whose caller waits for the answer.
func WithCaller(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, true)
}

// WithoutCaller marks the context of work that is done whether or not the
// caller still waits, such as undoing what its call has begun.
func WithoutCaller(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, false)
}

// HasCaller reports whether a caller waits, who is told after LeaderPatience
// that nothing was done. The node's own work waits for a leader as long as it
// may.
func HasCaller(ctx context.Context) bool {
	waits, _ := ctx.Value(callerKey{}).(bool)
	return waits
}
