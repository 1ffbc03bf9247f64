package raftgroup

// Stats counts what a Core and its Driver did since they started, and says
// what they hold now.
type Stats struct {
	// Groups are the replicas here, Awake those whose clock goes, Led those
	// that lead.
	Groups, Awake, Led int
	// Peers are the other nodes known, Silent those that are not heard.
	Peers, Silent int
	Counters
}

// Counters only rise.
type Counters struct {
	// Proposals entered a log here; ProposalsDropped did not.
	Proposals, ProposalsDropped uint64
	// Elections were won here. Campaigns were begun because a leader's node
	// went silent.
	Elections, Campaigns uint64
	// Sleeps and Wakes of groups.
	Sleeps, Wakes uint64
	// MessagesSent went into frames; MessagesUnlocated were dropped because
	// nobody knew their replica's node.
	MessagesSent, MessagesUnlocated uint64
	// MessagesReceived were for a replica here; MessagesRefused were not.
	MessagesReceived, MessagesRefused uint64
	// MessagesOverrun were lost because too much waited.
	MessagesOverrun       uint64
	FramesSent, BytesSent uint64
	Turns                 uint64
}

// Stats returns the state of the counters.
func (c *Core) Stats() Stats {
	s := Stats{Groups: len(c.order), Awake: len(c.ticking), Led: c.led, Peers: len(c.peers), Counters: c.stats}
	for _, p := range c.peers {
		if p.silent {
			s.Silent++
		}
	}
	return s
}

// Stats returns the counters as of the last tick. It does not block.
func (l *Loop) Stats() Stats {
	s := *l.published.Load()
	s.MessagesOverrun = l.overrun.Load()
	return s
}

// publish makes the counters visible to Stats.
func (l *Loop) publish() {
	s := l.core.Stats()
	l.published.Store(&s)
}
