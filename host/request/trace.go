package request

import (
	"encoding/hex"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Trace is the span in which a request is made or carried out. It is not
// changed once a Request has it. Nil is no span, or one that is not sampled.
type Trace struct{ journal.TraceContext }

// Recorded is what the record of a request keeps of its trace; nil where there
// is none, or the cluster's level has it not.
func (t *Trace) Recorded(level sharding.ClusterVersion) *journal.TraceContext {
	if t == nil || level < sharding.VersionRecordTrace {
		return nil
	}
	return &t.TraceContext
}

// Logged appends to the attributes of a log line, keys and values, in which
// span it is written: trace_id and span_id, in hexadecimal. Without a span it
// returns them as they are.
func (t *Trace) Logged(attributes ...any) []any {
	if t == nil {
		return attributes
	}
	return append(attributes, "trace_id", hex.EncodeToString(t.TraceContext.Trace[:]), "span_id", hex.EncodeToString(t.Span[:]))
}

// Visit is when a request was with its lane: zeros of what has not been.
type Visit struct {
	Since, Loaded, Began, Ended time.Time
	Module                      *journal.Digest // of the guest; nil: none was asked
}

// Leave ends what the lane keeps of a request that it has decided, but for when
// it was where.
func (l *LaneState) Leave() {
	*l = LaneState{Since: l.Since, loaded: l.loaded, began: l.began, decided: l.decided, module: l.module}
}

// Visit tells since when the request was with its lane, when its entity was in
// memory if it had to wait for that, and when the guest was given it and had
// ended. What is before Since is of an earlier attempt.
func (l *LaneState) Visit() Visit {
	return Visit{l.Since, l.loaded, l.began, l.decided, l.module}
}

// Loaded notes of all whose traces are sampled that their entity is in memory.
func (q *Queue) Loaded(now time.Time) {
	for n, r := 0, q.last; n < q.len; n, r = n+1, r.Lane.Next {
		if r.Trace != nil {
			r.Lane.loaded = now
		}
	}
}
