package membership

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxJoins bounds the addresses that are tried in one round, all at once;
// which ones changes from round to round.
const maxJoins = 8

// rejoin looks for nodes until ctx ends: for all at first, and later for those
// that are out of sight. memberlist forgets a dead node after half a minute, so
// two halves of a cluster would not find each other again by themselves.
func (m *Membership) rejoin(ctx context.Context) {
	alone := true
	for round := 0; ctx.Err() == nil; round++ {
		m.join(ctx, pick(m.targets(ctx), round))
		_, inSight := m.peers.missing()
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

// targets returns the addresses to try: of nodes that are out of sight, and of
// seeds where no node in sight listens.
func (m *Membership) targets(ctx context.Context) []string {
	targets, inSight := m.peers.missing()
	for _, seed := range m.opts.Seeds {
		found, err := m.opts.Lookup.Addresses(ctx, seed)
		if err != nil {
			m.opts.Logger.Debug("a seed's name is not known", "seed", seed, "error", err)
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

// pick returns the targets of a round: a window that moves over them.
func pick(targets []string, round int) []string {
	if len(targets) <= maxJoins {
		return targets
	}
	start := round * maxJoins % len(targets)
	return slices.Concat(targets[start:], targets[:start])[:maxJoins]
}

// join tries the targets, each within streamTimeout.
func (m *Membership) join(ctx context.Context, targets []string) {
	var tries sync.WaitGroup
	for _, target := range targets {
		if ctx.Err() != nil {
			break
		}
		tries.Go(func() {
			if _, err := m.list.Join([]string{target}); err != nil {
				m.opts.Logger.Debug("a node was not found", "address", target, "error", err)
			}
		})
	}
	tries.Wait()
}
