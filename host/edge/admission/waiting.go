package admission

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/request"
)

// WaitingBytesError: the requests that wait in memory on this node have used up
// their common budget, or those of the caller's address have used up its share.
// Nothing was done; retry after a moment. It wraps request.ErrOverloaded.
type WaitingBytesError struct {
	Limit     int64
	ofAddress bool // Limit is the share of an address
}

func (e *WaitingBytesError) Error() string {
	if e.ofAddress {
		return fmt.Sprintf("the requests of this address that wait on this node would exceed %d bytes; retry after a moment", e.Limit)
	}
	return fmt.Sprintf("the requests that wait on this node would exceed %d bytes; retry after a moment", e.Limit)
}

func (e *WaitingBytesError) Unwrap() error { return request.ErrOverloaded }

// Waiting is the budget of bytes for requests that wait between the server and
// the runtime. A request is charged from when it is read until the runtime
// has released it, even if its caller has disconnected. All streams and
// calls of a node share one Waiting, and those of one address may use at most half
// of it.
type Waiting struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Uint64
}

// NewWaiting makes a budget of limit bytes.
func NewWaiting(limit int64) *Waiting { return &Waiting{limit: limit} }

// UsedBytes returns the bytes in use.
func (w *Waiting) UsedBytes() int64 { return w.used.Load() }

// RefusedCount returns how many requests were rejected.
func (w *Waiting) RefusedCount() uint64 { return w.refused.Load() }

// RequestBytes is the approximate size of a request without its payload and
// names.
const RequestBytes = 512

// BytesOf returns the bytes that are charged for a request.
func BytesOf(r *request.Request) int64 {
	return RequestBytes + int64(len(r.Payload)+len(r.Name)+len(r.ID)+len(r.Entity.Type)+len(r.Entity.ID))
}

// Share is the budget as one call uses it: the bytes also count for the address
// of the caller, unless another node forwarded the call. The zero value has no
// bytes to give.
type Share struct {
	waiting *Waiting
	address *address // nil if no address is charged
}

// Of returns the share of a call.
func (w *Waiting) Of(ctx context.Context) Share {
	if c := ChargeOf(ctx); c != nil {
		return c.share
	}
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok && !leaderproxy.FromPeer(ctx) {
		return Share{w, c.address}
	}
	return Share{w, nil}
}

// limit returns the bytes that the share may hold.
func (s Share) limit() int64 {
	if s.address != nil {
		return s.waiting.limit / 2
	}
	return s.waiting.limit
}

// Take takes n bytes, or fails with a *WaitingBytesError if they exceed the
// budget or the half of it that an address may use.
func (s Share) Take(n int64) error {
	if s.address != nil && s.address.waiting.Add(n) > s.limit() {
		s.address.give(n)
		s.waiting.refused.Add(1)
		return &WaitingBytesError{s.limit(), true}
	}
	if s.waiting.used.Add(n) > s.waiting.limit {
		s.Give(n)
		s.waiting.refused.Add(1)
		return &WaitingBytesError{s.waiting.limit, false}
	}
	return nil
}

// count takes n bytes even if they exceed the budget, for uses that have a
// limit of their own.
func (s Share) count(n int64) {
	if s.address != nil {
		s.address.waiting.Add(n)
	}
	s.waiting.used.Add(n)
}

// Give returns n bytes.
func (s Share) Give(n int64) {
	if n == 0 {
		return
	}
	s.waiting.used.Add(-n)
	if s.address != nil {
		s.address.give(n)
	}
}
