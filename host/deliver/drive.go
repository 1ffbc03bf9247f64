package deliver

import (
	"time"

	"github.com/hostd/hostd/sharding"
)

// Core is a dispatcher without goroutines, for callers with their own clock and
// network, such as a simulator. Equal inputs lead to equal decisions. Its
// methods must be called from one goroutine, and requests must be completed on
// that goroutine.
type Core struct {
	core core
	news []news
}

// NewCore returns a Core without shards. It does not use Options.Clock and
// Shards.LeadsChanged.
func NewCore(opts Options) *Core {
	c := &Core{}
	c.core = newCore(opts.withDefaults(), c)
	return c
}

// NotifySent notifies the core that a shard has new messages.
func (c *Core) NotifySent(shard sharding.ShardID) { c.put(news{shard: shard}) }

// Step sets the time, processes everything that has happened since the last
// step, and delivers and acknowledges messages.
func (c *Core) Step(now time.Time) {
	c.core.now = now
	c.core.lead(c.core.opts.Shards.Leads())
	got := c.news
	c.news = nil
	for i := range got {
		c.core.take(&got[i])
	}
	c.core.step()
}

// Idle reports whether nothing is in flight and nothing waits.
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
func (c *Core) Stats() Stats { return c.core.stats() }

func (c *Core) put(n news) { c.news = append(c.news, n) }

func (c *Core) confirm(a *typeLookup) {
	a.unknown = c.core.opts.Types.IsUnknown(a.name)
	c.put(news{asked: a})
}
