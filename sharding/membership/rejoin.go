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

// rejoin looks for nodes until ctx ends: first for all, later for unreachable
// ones. memberlist forgets a dead node after half a minute, so without this two
// partitioned halves of a cluster would never find each other again.
func (m *Membership) rejoin(ctx context.Context) {
	alone := true
	for round := 0; ctx.Err() == nil; round++ {
		m.join(ctx, pick(m.targets(ctx, round), round))
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

// lookupTimeout limits the resolution of a name in a round.
const lookupTimeout = 5 * time.Second

// targets returns the addresses to try in a round: those of unreachable nodes,
// the current ones of the names that some of these nodes announced, and seeds
// at whose addresses no reachable node listens. A node that is back may have a
// new address under its old name, and no seed that leads it to this node.
func (m *Membership) targets(ctx context.Context, round int) []string {
	targets, names, inSight := m.peers.missing()
	for _, seed := range slices.Concat(m.opts.Seeds, pick(names, round)) {
		limited, cancel := context.WithTimeout(ctx, lookupTimeout)
		found, err := m.opts.Lookup.Addresses(limited, seed)
		cancel()
		if err != nil {
			m.opts.Logger.Debug("cannot resolve a seed or node", "name", seed, "error", err)
			continue
		}
		for _, target := range found {
			if target != m.self && !inSight[target] && !slices.Contains(targets, target) {
				targets = append(targets, target)
			}
		}
	}
	return targets
}

// pick returns the targets of a round, rotating through the list.
func pick(targets []string, round int) []string {
	if len(targets) <= maxJoins {
		return targets
	}
	start := round * maxJoins % len(targets)
	return slices.Concat(targets[start:], targets[:start])[:maxJoins]
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
