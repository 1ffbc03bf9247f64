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

// Shadows returns the watches of this node's shadow modules.
func (t *Types) Shadows() *trial.Watches { return t.settings.Shadows }

// Beside returns a Served for a module that does not serve the type, with the
// limits of the type that this node serves. It fails if this node does not
// trust the module's signature, or if the module declares a different kind or
// encoding than the serving module.
func (t *Types) Beside(ctx context.Context, entityType string, digest journal.Digest) (*Served, *guest.Module, error) {
	served := t.ServedType(entityType)
	b, bound := t.metadata.View().Activation(entityType)
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
		return nil, nil, fmt.Errorf("entity type %s is transient, so the modules have no common state to compare", entityType)
	case next.Durable != served.Durable || next.API.Encoding != served.API.Encoding:
		return nil, nil, fmt.Errorf("the module declares a different kind or encoding of %s than the active module", entityType)
	}
	return next, m, nil
}

// shadowCounts returns this node's comparison for a type, or nil if there is
// none.
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

// shadow returns the comparison for a type's shadow module over all nodes that
// are up, or nil if there is none. Counts of nodes that have stopped since are
// lost.
func (r *Rollouts) shadow(ctx context.Context, entityType string) *ShadowReport {
	s, set := meta.ShadowOf(r.metadata.View(), entityType)
	if !set {
		return nil
	}
	wish := trial.ShadowSetting{Digest: journal.Digest(s.Digest), Share: s.Share, Revision: s.Revision}
	out := &ShadowReport{ShadowSetting: wish}
	if b, bound := r.metadata.View().Activation(entityType); bound && journal.Digest(b.Digest) == wish.Digest {
		out.Note = "the module now serves the type, so there is nothing to compare"
	}
	all, silent, _ := r.ask(ctx, []string{entityType}) // nodes without an answer are counted as silent
	out.MissingNodes = silent
	for _, c := range all {
		if theirs := c.GetShadow(); c.GetEntityType() == entityType && theirs.GetRevision() == wish.Revision && theirs != nil {
			out.Add(shadowSum(entityType, theirs))
		}
	}
	return out
}
