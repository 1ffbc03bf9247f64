package entity

import (
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// coreEventKind is what an Event tells, and which of its fields do.
type coreEventKind uint8

const (
	eventLeaderChanged  coreEventKind = iota // Shard has a leader in Term, which is this node if Self
	eventTermStarted                         // the no-op of Term is applied, with Clock and Revision
	eventProposalDone                        // Number of Term: Err, Index, Proof
	eventReadConfirmed                       // the round with Number
	eventReadFailed                          // the same
	eventCallReturned                        // Call, which the executor went on without
	eventBindingsMoved                       // Options.Bindings returns more
	eventIdleTimesMoved                      // Options.IdleAfter or Options.Suspended returns something else
	eventReopened                            // Shard was changed by others, its clock is Clock
	eventAsked                               // Ask is to be called
	chunkRead
	timersRead
	existingRead
	inquiryAnswered
)

// coreEvent is an input of the core other than a request.
type coreEvent struct {
	Kind     coreEventKind
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
	Call     *guestCall
	Ask      func()

	load     *load
	chunk    *historyChunk // of load
	scan     *timers.Scan
	existing *autostartScan
	inquiry  *inquiry
}

func (c *core) event(ev *coreEvent) {
	switch ev.Kind {
	case eventLeaderChanged:
		c.leaderChanged(ev.Shard, ev.Term, ev.Self)
	case eventTermStarted:
		c.termStarted(ev.Shard, ev.Term, ev.Clock, ev.Revision, ev.Owing)
	case eventProposalDone:
		if s := c.shards[ev.Shard]; s != nil {
			c.index = ev.Index
			c.proposalDone(s, ev.Term, ev.Number, ev.Err)
			s.prove(ev.Proof)
			s.work(ev.Owing)
		}
	case eventReadConfirmed:
		if s := c.shards[ev.Shard]; s != nil {
			s.readConfirmed(ev.Number)
		}
	case eventReadFailed:
		if s := c.shards[ev.Shard]; s != nil {
			s.readFailed(ev.Number)
		}
	case chunkRead:
		c.loaded(ev.load, ev.chunk)
	case eventCallReturned:
		c.visitDone(ev.Call)
	case inquiryAnswered:
		c.answered(ev.inquiry)
	case timersRead:
		c.timers.Found(ev.scan)
	case eventIdleTimesMoved:
		c.residents.idleTimesMoved()
		c.timers.SuspensionsMoved()
	case existingRead:
		c.starter.Found(ev.existing)
	case eventBindingsMoved:
		c.bindingsMoved()
	case eventAsked:
		ev.Ask()
	case eventReopened:
		c.reopen(ev.Shard, ev.Clock)
	}
}
