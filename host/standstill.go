package host

import (
	"time"

	"github.com/hostd/hostd/host/stall"
)

// severTime bounds how long a node with a hanging disk takes to close its
// connections and to log the reason.
const severTime = time.Second

// watchStalls starts the watchdog for the disk and the raft loop.
func (n *Node) watchStalls() {
	n.watches.stalls = stall.NewGuard(stall.GuardOptions{
		Raft: &n.replicas.raft, SuspectAfter: n.cfg.SuspectAfter, EndAfter: n.cfg.DiskStallAfter, Logger: n.logger, Node: stalling{n},
	})
	n.lifecycle.watch("watch of stalls", n.watches.stalls.Run)
}

// stalling implements the interface through which the stall watchdog uses the
// node.
type stalling struct{ n *Node }

// Stopping reports whether the node is being stopped.
func (s stalling) Stopping() bool { return s.n.lifecycle.Stopping() }

// OnStall makes other nodes take over this node's leaderships while its raft loop
// stalls.
func (s stalling) OnStall(still bool) {
	n := s.n
	if n.joined.Load() {
		n.routing.leaders.SetStalled(still)
		n.membership.member.Kick()
	}
	if still {
		// Callers with commands that hang in the loop retry on other nodes.
		// Their command ids ensure that each command takes effect once.
		n.ports.server.Break()
	}
}

// End ends the process. It closes listeners and connections first,
// because the kernel keeps them open as long as one thread hangs in it. It
// waits at most severTime for that and for the log line, which may go to the
// same disk.
func (s stalling) End(why error) {
	n := s.n
	n.lifecycle.stopping.Store(true)
	limit := time.NewTimer(severTime)
	defer limit.Stop()
	done := make(chan struct{})
	go func() {
		n.ports.sever()
		n.logger.Error("the process ends", "error", why)
		close(done)
	}()
	select {
	case <-done:
	case <-limit.C:
	}
	n.around.Exit(1)
}

// observeSync records the duration of a sync of the log.
func (n *Node) observeSync(d time.Duration) {
	n.metrics.observeSync(d)
	n.replicas.pace.Add(d, time.Now())
}
