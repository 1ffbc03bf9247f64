package modules

import (
	"context"
	"fmt"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Shadows are what other modules decide too on this node.
func (t *Types) Shadows() *trial.Watches { return t.settings.Shadows }

// Beside is how a module would serve a type that this node serves, by the
// type's limits. It is refused where its signature does not count here, and
// where it keeps the type in another way than the one that serves.
func (t *Types) Beside(ctx context.Context, entityType string, digest journal.Digest) (*Served, *guest.Module, error) {
	served := t.Served(entityType)
	b, bound := t.metadata.View().Binding(entityType)
	if !bound || served == nil {
		return nil, nil, request.ErrModuleNotLoaded
	}
	m, err := t.modules.ToRun(ctx, digest, "")
	if err != nil {
		return nil, nil, err
	}
	b.Bound = meta.Bound{Digest: meta.Digest(digest), Revision: b.Revision}
	next, err := t.load(ctx, b, served.bounds)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case next.Transient || served.Transient:
		return nil, nil, fmt.Errorf("entities of type %s keep no state: there is nothing that both modules could begin with", entityType)
	case next.Durable != served.Durable || next.API.Encoding != served.API.Encoding:
		return nil, nil, fmt.Errorf("the module declares the kind or the encoding of %s otherwise than the one that serves it", entityType)
	}
	return next, m, nil
}

// shadowCounts are what is compared here of a type; nil where nothing is.
func (t *Types) shadowCounts(entityType string) *peerv1.ShadowCounts {
	w := t.settings.Shadows.Of(entityType)
	if w == nil {
		return nil
	}
	s := w.Sum()
	out := &peerv1.ShadowCounts{
		Revision: w.Revision, Compared: s.Compared, Differ: s.Differ, By: s.By[:], Dropped: s.Dropped, PassedOver: s.Passed, Fuel: s.Fuel, OtherFuel: s.Other, Note: s.Note,
	}
	for _, e := range s.Examples {
		out.Examples = append(out.Examples, &peerv1.ShadowExample{EntityId: e.Entity.ID, Sequence: uint64(e.Sequence), Command: e.Command, In: uint32(e.In), Fault: e.Fault})
	}
	return out
}

func shadowSum(entityType string, c *peerv1.ShadowCounts) *trial.Sum {
	s := &trial.Sum{Compared: c.GetCompared(), Differ: c.GetDiffer(), Dropped: c.GetDropped(), Passed: c.GetPassedOver(), Fuel: c.GetFuel(), Other: c.GetOtherFuel(), Note: c.GetNote()}
	copy(s.By[:], c.GetBy())
	for _, e := range c.GetExamples() {
		s.Examples = append(s.Examples, trial.Example{
			Entity: sharding.EntityID{Type: entityType, ID: e.GetEntityId()}, Sequence: journal.Sequence(e.GetSequence()), Command: e.GetCommand(), In: trial.Difference(e.GetIn()), Fault: e.GetFault(),
		})
	}
	return s
}

// shadow is what another module decides too of a type on all nodes that are up,
// nil where none does. What nodes counted that have stopped since is lost.
func (r *Rollouts) shadow(ctx context.Context, entityType string) *ShadowReport {
	s, set := meta.ShadowOf(r.metadata.View(), entityType)
	if !set {
		return nil
	}
	wish := trial.Wish{Digest: journal.Digest(s.Digest), Share: s.Share, Revision: s.Revision}
	out := &ShadowReport{Wish: wish}
	if b, bound := r.metadata.View().Binding(entityType); bound && journal.Digest(b.Digest) == wish.Digest {
		out.Note = "the module serves the type by now: there is nothing to compare"
	}
	all, silent, _ := r.ask(ctx, []string{entityType}) // who did not say is counted
	out.Silent = silent
	for _, c := range all {
		if theirs := c.GetShadow(); c.GetEntityType() == entityType && theirs.GetRevision() == wish.Revision && theirs != nil {
			out.Add(shadowSum(entityType, theirs))
		}
	}
	return out
}
