package request

import (
	"context"
	"time"
)

// LeaderPatience is how long a request that has had no effect yet waits for a
// leader if its caller waits for the answer. An election is over by then, or the
// shard has no majority.
const LeaderPatience = 800 * time.Millisecond

// callerKey is the context key of HasCaller.
type callerKey struct{}

// WithCaller marks the context of a call whose caller waits for the answer.
func WithCaller(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, true)
}

// WithoutCaller marks the context of work that is done whether or not the caller
// still waits, such as undoing what its call has begun.
func WithoutCaller(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, false)
}

// HasCaller reports whether a caller waits for the answer. If so, the caller
// gets an error after LeaderPatience if nothing was done by then. The node's
// own work has no caller and waits for a leader until its deadline.
func HasCaller(ctx context.Context) bool {
	waits, _ := ctx.Value(callerKey{}).(bool)
	return waits
}
