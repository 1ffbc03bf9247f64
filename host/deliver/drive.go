package deliver

import (
	"time"

	"github.com/hostd/hostd/sharding"
)

// Core is a pump without goroutines, for who has a clock and a network of his
// own: the same inputs lead to the same decisions. It is for one goroutine;
// requests may be completed at any time, from that goroutine.
type Core struct {
	core core
	news []news
}

// NewCore returns a Core that knows of nothing yet. Clock and Changed are not
// asked.
func NewCore(opts Options) *Core {
	c := &Core{}
	c.core = newCore(opts.withDefaults(), c)
	return c
}

// Sent is told that a shard has new messages.
func (c *Core) Sent(shard sharding.ShardID) { c.put(news{shard: shard}) }

// Step takes the time and all that has happened since the last step, and
// delivers and acknowledges what it can.
func (c *Core) Step(now time.Time) {
	c.core.now = now
	c.core.lead(c.core.opts.Shards.Led())
	got := c.news
	c.news = nil
	for i := range got {
		c.core.take(&got[i])
	}
	c.core.step()
}

// Idle reports that nothing is on its way and nothing waits.
func (c *Core) Idle() bool {
	for _, s := range c.core.order {
		if len(s.flows) > 0 || s.waiting.forgot || s.unread || s.arrived.open() || s.gaveUp.open() {
			return false
		}
	}
	return c.core.flight == 0 && len(c.news) == 0
}

func (l *ackList) open() bool { return l.busy || len(l.waiting) > 0 }

// Stats returns the counters.
func (c *Core) Stats() Stats { return c.core.counts.stats() }

func (c *Core) put(n news) { c.news = append(c.news, n) }

func (c *Core) confirm(a *asked) {
	a.unknown = c.core.opts.Types.Unknown(a.name)
	c.put(news{asked: a})
}
