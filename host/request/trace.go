package request

import (
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Trace is the span in which a request is made or carried out. It is not
// changed once a Request has it. Nil is no span, or one that is not sampled.
type Trace struct{ journal.TraceContext }

// Recorded is what the record of a request keeps of its trace; nil where there
// is none, or the cluster's level has it not.
func (t *Trace) Recorded(level sharding.Level) *journal.TraceContext {
	if t == nil || level < sharding.LevelRecordTrace {
		return nil
	}
	return &t.TraceContext
}

// Visit tells since when the request was with its lane, and when the guest was
// given it and had ended: zeros of one that no guest was given.
func (l *LaneState) Visit() (since, began, ended time.Time) { return l.Since, l.began, l.decided }
