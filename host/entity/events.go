package entity

import (
	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// coreEventKind is the kind of a coreEvent. It determines which fields are set.
type coreEventKind uint8

const (
	eventLeaderChanged      coreEventKind = iota // Shard has a leader in Term, which is this node if Self
	eventTermStarted                             // the no-op entry of Term is applied; Clock and Revision are set
	eventProposalDone                            // proposal Number of Term is decided: Err, Index, Proof
	eventReadConfirmed                           // ReadIndex round Number is confirmed
	eventReadFailed                              // ReadIndex round Number is not confirmed
	eventCallReturned                            // Call has returned, after the executor continued without it
	eventActivationsChanged                      // the activations served by the node have changed
	eventIdleTimesChanged                        // the settings of idle times or of suspended types have changed
	eventReopened                                // entries from outside the executor changed Shard; its log clock is now Clock
	eventAsked                                   // Ask must be called
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
	Number   uint64 // number of a proposal or of a ReadIndex round
	Clock    int64
	Revision uint64 // revision of the shard's activations
	Err      error
	Index    uint64 // log index of the entry
	Proof    *journal.Proof
	Owing    bool // paced work is left in the shard
	Call     *guestCall
	Ask      func()

	load     *load
	chunk    *historyChunk // next chunk of load
	scan     *timers.Scan
	existing *alwaysOnScan
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
			s.proposeChecksum(ev.Proof)
			s.proposeWork(ev.Owing)
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
		c.onChunk(ev.load, ev.chunk)
	case eventCallReturned:
		c.finishDetachedCall(ev.Call)
	case inquiryAnswered:
		c.finishInquiry(ev.inquiry)
	case timersRead:
		c.timers.OnScan(ev.scan)
	case eventIdleTimesChanged:
		c.residents.updateIdleTimes()
		c.timers.SuspensionsChanged()
	case existingRead:
		c.alwaysOn.OnScan(ev.existing)
	case eventActivationsChanged:
		c.onActivationsChanged()
	case eventAsked:
		ev.Ask()
	case eventReopened:
		c.reopen(ev.Shard, ev.Clock)
	}
}
