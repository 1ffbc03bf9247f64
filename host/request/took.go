package request

import (
	"time"

	"github.com/hostd/hostd/journal"
)

// Stage is one of the things that a command waits for.
type Stage uint8

const (
	// StageQueue lasts until the command's lane gives it to the guest.
	StageQueue Stage = iota
	// StageGuest is the guest's call.
	StageGuest
	// StageCommit lasts until the command's record is applied.
	StageCommit
	// Stages is how many there are.
	Stages
)

// Took counts the commands of an entity type by how long they took. It is safe
// for concurrent use, and does not block.
type Took [Stages]interface{ Observe(time.Duration) }

// Visited notes that a guest of the module was given the request; took has the
// counts of its type, nil: nothing is counted. The digest is not changed while
// the request has it.
func (l *LaneState) Visited(took *Took, module *journal.Digest, began, ended time.Time) {
	l.began, l.decided, l.module = began, ended, module
	if took == nil {
		return
	}
	took[StageQueue].Observe(began.Sub(l.Since))
	took[StageGuest].Observe(ended.Sub(began))
	l.took = took
}

// Committed notes that the record of the command is applied.
func (l *LaneState) Committed(now time.Time) {
	if l.took != nil {
		l.took[StageCommit].Observe(now.Sub(l.decided))
	}
}
