package membership

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxJoins limits how many addresses are tried concurrently in one round. The
// rounds rotate through all addresses.
const maxJoins = 8

// rejoin looks for nodes until ctx ends: first for all nodes, later only for
// unreachable nodes. memberlist forgets a dead node after half a minute, so
// without this two partitioned halves of a cluster would never find each other
// again.
func (m *Membership) rejoin(ctx context.Context) {
	alone := true
	for round := 0; ctx.Err() == nil; round++ {
		m.search(ctx, round)
		_, _, inSight := m.peers.missing()
		if found := len(inSight) > 0; found == alone {
			alone = !found
			m.opts.Logger.Info("gossip", "alone", alone)
		}
		pause := m.opts.Rejoin
		if alone {
			pause = m.opts.Alone
		}
		timer := time.NewTimer(pause + m.opts.Jitter(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// lookupTimeout limits the resolution of all names in a round.
const lookupTimeout = 5 * time.Second

// search tries the addresses of a round. First come the addresses of
// unreachable nodes, so that known addresses do not wait for a name server.
// Then come the resolved addresses of the seeds and of the host names that some
// of these nodes announced, except those at which a reachable node listens.
// Host names are resolved again because a node that is back may have a new
// address under its old name, and no seed through which it finds this node.
func (m *Membership) search(ctx context.Context, round int) {
	lost, names, inSight := m.peers.missing()
	var resolved []string
	var lookups sync.WaitGroup
	lookups.Go(func() { resolved = m.resolve(ctx, rotate(slices.Concat(m.opts.Seeds, pick(names, round)), round)) })
	m.join(ctx, pick(lost, round))
	lookups.Wait()
	m.join(ctx, pick(slices.DeleteFunc(resolved, func(target string) bool {
		return target == m.self || inSight[target] || slices.Contains(lost, target)
	}), round))
}

// resolve returns the addresses of the names that a name server resolves within
// lookupTimeout, each once, sorted.
func (m *Membership) resolve(ctx context.Context, names []string) []string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, failed := m.opts.Lookup.AllAddresses(ctx, names)
	for i, err := range failed {
		if err != nil {
			m.opts.Logger.Debug("cannot resolve a seed or node", "name", names[i], "error", err)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(found...))))
}

// pick returns the targets of a round, rotating through the list.
func pick(targets []string, round int) []string {
	if len(targets) <= maxJoins {
		return targets
	}
	return rotate(targets, round)[:maxJoins]
}

// rotate returns a list that begins with a different part of the given list in
// each round. If the start of the list takes all the time of a round, later
// entries come first in a later round.
func rotate(list []string, round int) []string {
	if len(list) == 0 {
		return nil
	}
	start := round * maxJoins % len(list)
	return slices.Concat(list[start:], list[:start])
}

// join tries the targets, each with timeout streamTimeout.
func (m *Membership) join(ctx context.Context, targets []string) {
	var tries sync.WaitGroup
	for _, target := range targets {
		if ctx.Err() != nil {
			break
		}
		tries.Go(func() {
			if _, err := m.list.Join([]string{target}); err != nil {
				m.opts.Logger.Debug("cannot join through a seed", "address", target, "error", err)
			}
		})
	}
	tries.Wait()
}
