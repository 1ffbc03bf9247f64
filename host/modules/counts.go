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

// Counts tells other nodes what the two modules did here of each type that two
// serve, and what another one decides too.
func (t *Types) Counts(entityTypes []string) (out []*peerv1.TypeCounts, err error) {
	if len(entityTypes) > meta.MaxTypesPerModule {
		return nil, fmt.Errorf("%w: counts of %d types", peer.ErrRefused, len(entityTypes))
	}
	for _, name := range entityTypes {
		c := &peerv1.TypeCounts{EntityType: name, Shadow: t.shadowCounts(name)}
		if s := t.Served(name); s.canary() != nil {
			window, older := s.Counts.Since()
			same, newer := s.newer.Counts.Since()
			if same == window { // the bindings do not move just now
				c.Window, c.Older, c.Newer = window, counted(&older), counted(&newer)
			}
		}
		if c.Shadow != nil || c.Older != nil {
			out = append(out, c)
		}
	}
	return out, nil
}

func counted(c *trial.Counts) *peerv1.ModuleCounts {
	return &peerv1.ModuleCounts{Commands: c.Commands, Rejections: c.Rejections, Faults: c.Faults, Took: c.Took[:]}
}

// EachCanary calls do with the types that two modules serve here.
func (t *Types) EachCanary(do func(entityType string, older, newer *trial.Counter)) {
	for name, s := range *t.types.Load() {
		if s.newer != nil {
			do(name, s.Counts, s.newer.Counts)
		}
	}
}

// versions are what two modules did of a type, on all nodes.
type versions struct{ older, newer trial.Counts }

// counts are what the modules of rollouts that go together did since those
// began, on this node and on those that are up; silent of these did not say.
// What nodes counted that have stopped since is lost.
func (r *Rollouts) counts(ctx context.Context, going []meta.Binding) (by map[string]*versions, silent int, err error) {
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

// ask gathers what this node and those that are up have counted; silent of
// these did not say. What came is returned with an error too.
func (r *Rollouts) ask(ctx context.Context, entityTypes []string) (all []*peerv1.TypeCounts, silent int, err error) {
	if all, err = r.types.Counts(entityTypes); err != nil {
		return nil, 0, err
	}
	var mu sync.Mutex
	done := r.modules.each(r.modules.others(), func(node sharding.NodeID) error {
		theirs, err := r.modules.peers.Counts(ctx, node, entityTypes)
		mu.Lock()
		defer mu.Unlock()
		if err != nil && r.modules.peers.Heard(node) {
			silent++
			return err
		}
		all = append(all, theirs...)
		return nil
	})
	if done.err != nil {
		err = fmt.Errorf("ask what two modules did: %w", errors.Join(status.ErrNoMajority, done.err))
	}
	return all, silent, err
}

func addCounted(to *trial.Counts, c *peerv1.ModuleCounts) {
	one := trial.Counts{Commands: c.GetCommands(), Rejections: c.GetRejections(), Faults: c.GetFaults()}
	copy(one.Took[:], c.GetTook())
	to.Add(&one)
}

// broken says which rule of rollouts that go together is broken, and why.
func broken(going []meta.Binding, by map[string]*versions) (rule trial.Rule, why string, err error) {
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
