package entity

import (
	"github.com/hostd/hostd/host/entity/autostart"
	"github.com/hostd/hostd/host/entity/history"
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// EventKind is what an Event tells, and which of its fields do.
type EventKind uint8

const (
	LeaderChanged  EventKind = iota // Shard has a leader in Term, which is this node if Self
	TermStarted                     // the no-op of Term is applied, with Clock and Revision
	ProposalDone                    // Number of Term: Err, Index, Proof
	ReadConfirmed                   // the round with Number
	ReadFailed                      // the same
	VisitReturned                   // Call, which the lane went on without
	BindingsMoved                   // Options.Bindings returns more
	IdleTimesMoved                  // Options.IdleAfter or Options.Suspended returns something else
	Reopened                        // Shard was changed by others, its clock is Clock
	Asked                           // Ask is to be called
	chunkRead
	timersRead
	existingRead
	inquiryAnswered
)

// Event is an input of the core other than a request.
type Event struct {
	Kind     EventKind
	Self     bool
	Shard    sharding.ShardID
	Term     sharding.Term
	Number   uint64 // of a proposal, or of a read round
	Clock    int64
	Revision uint64 // of the shard's bindings
	Err      error
	Index    uint64 // of the entry
	Proof    *journal.Proof
	Owing    bool // the shard has work left that its next entries do
	Call     *Call
	Ask      func()

	load     *load
	chunk    *history.Chunk // of load
	scan     *timers.Scan
	existing *autostart.Scan
	inquiry  *inquiry
}

func (c *core) event(ev *Event) {
	switch ev.Kind {
	case LeaderChanged:
		c.leaderChanged(ev.Shard, ev.Term, ev.Self)
	case TermStarted:
		c.termStarted(ev.Shard, ev.Term, ev.Clock, ev.Revision, ev.Owing)
	case ProposalDone:
		if s := c.shards[ev.Shard]; s != nil {
			c.index = ev.Index
			c.proposalDone(s, ev.Term, ev.Number, ev.Err)
			s.prove(ev.Proof)
			s.work(ev.Owing)
		}
	case ReadConfirmed:
		if s := c.shards[ev.Shard]; s != nil {
			s.readConfirmed(ev.Number)
		}
	case ReadFailed:
		if s := c.shards[ev.Shard]; s != nil {
			s.readFailed(ev.Number)
		}
	case chunkRead:
		c.loaded(ev.load, ev.chunk)
	case VisitReturned:
		c.visitDone(ev.Call)
	case inquiryAnswered:
		c.answered(ev.inquiry)
	case timersRead:
		c.timers.Found(ev.scan)
	case IdleTimesMoved:
		c.residents.idleTimesMoved()
		c.timers.SuspensionsMoved()
	case existingRead:
		c.starter.Found(ev.existing)
	case BindingsMoved:
		c.bindingsMoved()
	case Asked:
		ev.Ask()
	case Reopened:
		c.reopen(ev.Shard, ev.Clock)
	}
}
