package admission

import (
	"fmt"
	"sync/atomic"

	"github.com/hostd/hostd/host/request"
)

// WaitingBytesError: the requests that wait on this node, in memory, have used
// up what they may take together. Nothing was done; retry after a moment. It is
// a request.ErrOverloaded.
type WaitingBytesError struct{ Limit int64 }

func (e *WaitingBytesError) Error() string {
	return fmt.Sprintf("the requests that wait on this node would take more than %d bytes; retry after a moment", e.Limit)
}

func (e *WaitingBytesError) Unwrap() error { return request.ErrOverloaded }

// Waiting counts the bytes of requests between the server and the runtime:
// from when they are read until the runtime has let go of them, whether their
// callers have gone or not. All streams and calls of a node share one.
type Waiting struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Uint64
}

// NewWaiting lets limit bytes wait.
func NewWaiting(limit int64) *Waiting { return &Waiting{limit: limit} }

// Used is what waits now.
func (w *Waiting) Used() int64 { return w.used.Load() }

// Refused counts what was refused.
func (w *Waiting) Refused() uint64 { return w.refused.Load() }

// RequestBytes is about what a request takes beside its bytes.
const RequestBytes = 512

// BytesOf is what a single request counts for.
func BytesOf(r *request.Request) int64 {
	return RequestBytes + int64(len(r.Payload)+len(r.Name)+len(r.ID)+len(r.Entity.Type)+len(r.Entity.ID))
}

// Take counts n bytes, or fails with a *WaitingBytesError when they are too
// many together with what waits.
func (w *Waiting) Take(n int64) error {
	if w.used.Add(n) > w.limit {
		w.used.Add(-n)
		w.refused.Add(1)
		return &WaitingBytesError{Limit: w.limit}
	}
	return nil
}

// Count counts n bytes whatever waits. It is for what has a bound of its own.
func (w *Waiting) Count(n int64) { w.used.Add(n) }

// Give lets go of n bytes.
func (w *Waiting) Give(n int64) { w.used.Add(-n) }
