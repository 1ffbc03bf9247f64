package request

import (
	"encoding/hex"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Trace is the span in which a request is made or executed. It is not changed
// after a Request refers to it. Nil means no span, or an unsampled span.
type Trace struct{ journal.TraceContext }

// ForRecord returns the trace context that the record of a request stores; nil
// if there is no span or the cluster version does not store traces yet.
func (t *Trace) ForRecord(version sharding.ClusterVersion) *journal.TraceContext {
	if t == nil || version < sharding.VersionRecordTrace {
		return nil
	}
	return &t.TraceContext
}

// LogAttributes appends the keys and values trace_id and span_id, in hexadecimal, to
// the attributes of a log line. Without a span it returns the attributes
// unchanged.
func (t *Trace) LogAttributes(attributes ...any) []any {
	if t == nil {
		return attributes
	}
	return append(attributes, "trace_id", hex.EncodeToString(t.TraceContext.Trace[:]), "span_id", hex.EncodeToString(t.Span[:]))
}

// CallTimes has the times of a request's stages at its executor. Times of stages
// that it did not reach are zero.
type CallTimes struct {
	Since, Loaded, Began, Ended time.Time
	Module                      *journal.Digest // the guest's module; nil if no guest was called
}

// Leave clears the executor's data in a request that is decided, except the
// times of its stages.
func (l *ExecutorState) Leave() {
	*l = ExecutorState{Since: l.Since, loaded: l.loaded, began: l.began, decided: l.decided, module: l.module}
}

// CallTimes returns when the executor received the request, when its entity was in
// memory if the request had to wait for that, and when the guest call began and
// ended. A time before Since belongs to an earlier attempt.
func (l *ExecutorState) CallTimes() CallTimes {
	return CallTimes{l.Since, l.loaded, l.began, l.decided, l.module}
}

// RecordLoad records, for all queued requests whose traces are sampled, that their
// entity is now in memory.
func (q *Queue) RecordLoad(now time.Time) {
	for n, r := 0, q.last; n < q.len; n, r = n+1, r.Exec.Next {
		if r.Trace != nil {
			r.Exec.loaded = now
		}
	}
}
