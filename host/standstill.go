package host

import (
	"time"

	"github.com/hostd/hostd/host/stall"
)

// severTime bounds how long a node whose disk hangs takes to close its
// connections and to say why.
const severTime = time.Second

// watchStalls notices from now on when the disk or the raft loop stands still.
func (n *Node) watchStalls() {
	n.watches.stalls = stall.NewGuard(stall.GuardOptions{
		Turns: n.replicas.raft.turns, SilentAfter: n.cfg.SuspectAfter, EndAfter: n.cfg.DiskStallAfter, Logger: n.logger,
		Stopping: n.lifecycle.stopping.Load, Stands: n.stand, End: n.endStalled,
	})
	n.lifecycle.watch("watch of stalls", n.watches.stalls.Run)
}

// stand has others take what this node leads while its loop stands still.
func (n *Node) stand(still bool) {
	if n.joined.Load() {
		n.routing.leaders.Stand(still)
		n.membership.member.Kick()
	}
	if still {
		// Callers whose commands hang in the loop ask elsewhere; under their
		// ids the commands take effect once.
		n.ports.server.Break()
	}
}

// endStalled ends the process. Its listeners and connections are closed before:
// the kernel keeps them for as long as one thread hangs in it. Neither that nor
// the log line, which may go to the same disk, is waited for beyond its time.
func (n *Node) endStalled(why error) {
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

// observeSync takes note of how long a sync of the log took.
func (n *Node) observeSync(d time.Duration) {
	n.metrics.observeSync(d)
	n.replicas.pace.Add(d, time.Now())
}
