package admission

import (
	"fmt"
	"sync/atomic"

	"github.com/hostd/hostd/host/request"
)

// WaitingBytesError: the requests that wait in memory on this node have used up
// their common budget. Nothing was done; retry after a moment. It wraps
// request.ErrOverloaded.
type WaitingBytesError struct{ Limit int64 }

func (e *WaitingBytesError) Error() string {
	return fmt.Sprintf("the requests that wait on this node would exceed %d bytes; retry after a moment", e.Limit)
}

func (e *WaitingBytesError) Unwrap() error { return request.ErrOverloaded }

// Waiting is the budget of bytes for requests that wait between the server and
// the runtime. A request is charged from when it is read until the runtime
// has released it, even if its caller has disconnected. All streams and
// calls of a node share one Waiting.
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

// Take takes n bytes from the budget, or fails with a *WaitingBytesError if they
// exceed it.
func (w *Waiting) Take(n int64) error {
	if w.used.Add(n) > w.limit {
		w.used.Add(-n)
		w.refused.Add(1)
		return &WaitingBytesError{Limit: w.limit}
	}
	return nil
}

// count takes n bytes even if they exceed the budget, for uses that have a
// limit of their own.
func (w *Waiting) count(n int64) { w.used.Add(n) }

// Give returns n bytes to the budget.
func (w *Waiting) Give(n int64) { w.used.Add(-n) }
