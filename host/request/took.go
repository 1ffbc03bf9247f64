package request

import (
	"time"

	"github.com/hostd/hostd/journal"
)

// Stage is one of the phases of a command that are timed.
type Stage uint8

const (
	// StageQueue lasts until the command's executor starts the guest call.
	StageQueue Stage = iota
	// StageGuest is the guest call.
	StageGuest
	// StageCommit lasts until the command's record is applied.
	StageCommit
	// Stages is the number of stages.
	Stages
)

// Took has one duration histogram per stage for the commands of an entity type.
// It is safe for concurrent use and does not block.
type Took [Stages]interface{ Observe(time.Duration) }

// RecordCall records that a guest of the module was called for the request, and
// when. took has the histograms of its type; nil observes nothing. The digest
// must not change while the request refers to it.
func (l *ExecutorState) RecordCall(took *Took, module *journal.Digest, began, ended time.Time) {
	l.began, l.decided, l.module = began, ended, module
	if took == nil {
		return
	}
	took[StageQueue].Observe(began.Sub(l.Since))
	took[StageGuest].Observe(ended.Sub(began))
	l.took = took
}

// RecordCommit records that the record of the command is applied.
func (l *ExecutorState) RecordCommit(now time.Time) {
	if l.took != nil {
		l.took[StageCommit].Observe(now.Sub(l.decided))
	}
}
