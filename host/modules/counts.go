package modules

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hostd/hostd/host/status"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Counts returns, for other nodes, this node's counts for each of the types:
// those of both modules during a rollout, and the comparisons of a shadow
// module.
func (t *Types) Counts(entityTypes []string) (out []*peerv1.TypeCounts, err error) {
	if len(entityTypes) > meta.MaxTypesPerModule {
		return nil, fmt.Errorf("%w: the request has counters of %d types", peer.ErrRefused, len(entityTypes))
	}
	for _, name := range entityTypes {
		c := &peerv1.TypeCounts{EntityType: name, Shadow: t.shadowCounts(name)}
		if s := t.ServedType(name); s.canary() != nil {
			window, older := s.Counts.Since()
			same, newer := s.newer.Counts.Since()
			if same == window { // false while the activations are changing
				c.Window, c.Older, c.Newer = window, countsToWire(&older), countsToWire(&newer)
			}
		}
		if c.Shadow != nil || c.Older != nil {
			out = append(out, c)
		}
	}
	return out, nil
}

func countsToWire(c *trial.Counts) *peerv1.ModuleCounts {
	return &peerv1.ModuleCounts{Commands: c.Commands, Rejections: c.Rejections, Faults: c.Faults, Took: c.Took[:]}
}

// EachCanary calls do for the types that two modules serve here.
func (t *Types) EachCanary(do func(entityType string, older, newer *trial.Counter)) {
	for name, s := range *t.types.Load() {
		if s.newer != nil {
			do(name, s.Counts, s.newer.Counts)
		}
	}
}

// versions are the counts of both modules of a type, over all nodes.
type versions struct{ older, newer trial.Counts }

// counts returns the counts of both modules since the rollouts began, for
// types that share a rollout. It covers this node and the other running
// nodes; silent is the number of nodes that did not answer. The counts of
// nodes that have stopped since are lost.
func (r *Rollouts) counts(ctx context.Context, going []meta.Activation) (by map[string]*versions, silent int, err error) {
	by = map[string]*versions{}
	windows := map[string]uint64{}
	for _, g := range going {
		by[g.EntityType], windows[g.EntityType] = &versions{}, g.Rollout.Began
	}
	all, silent, err := r.ask(ctx, typesOf(going))
	for _, c := range all {
		if v := by[c.GetEntityType()]; v != nil && c.GetWindow() == windows[c.GetEntityType()] {
			addCounted(&v.older, c.GetOlder())
			addCounted(&v.newer, c.GetNewer())
		}
	}
	return by, silent, err
}

// ask collects the counts of this node and of the other running nodes; silent
// is the number of nodes that did not answer. If there is an error, the
// received counts are returned too.
func (r *Rollouts) ask(ctx context.Context, entityTypes []string) (all []*peerv1.TypeCounts, silent int, err error) {
	if all, err = r.types.Counts(entityTypes); err != nil {
		return nil, 0, err
	}
	var mu sync.Mutex
	done := r.modules.each(r.modules.members.Others(), func(node sharding.NodeID) error {
		theirs, err := r.modules.peers.Counts(ctx, node, entityTypes)
		mu.Lock()
		defer mu.Unlock()
		if err != nil && r.modules.peers.IsAlive(node) {
			silent++
			return err
		}
		all = append(all, theirs...)
		return nil
	})
	if done.err != nil {
		err = fmt.Errorf("read the counters of a rollout: %w", errors.Join(status.ErrNoMajority, done.err))
	}
	return all, silent, err
}

func addCounted(to *trial.Counts, c *peerv1.ModuleCounts) {
	one := trial.Counts{Commands: c.GetCommands(), Rejections: c.GetRejections(), Faults: c.GetFaults()}
	copy(one.Took[:], c.GetTook())
	to.Add(&one)
}

// broken returns the first broken rule of the types that share a rollout, and
// why it is broken. why is empty if no rule is broken.
func broken(going []meta.Activation, by map[string]*versions) (rule trial.Rule, why string, err error) {
	rules, err := trial.ParseRules(going[0].Rollout.Rules)
	if err != nil {
		return rule, "", err
	}
	for _, g := range going {
		for _, rule := range rules {
			if why := rule.Broken(&by[g.EntityType].older, &by[g.EntityType].newer); why != "" {
				return rule, g.EntityType + ": " + why, nil
			}
		}
	}
	return rule, "", nil
}
