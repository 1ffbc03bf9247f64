package moduleapi

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// shownEventTypes limits the event types that a rejection names.
const shownEventTypes = 16

// replacementCheck is the result of the compatibility check before an
// activation.
type replacementCheck struct {
	warnings []string
	forcedBy string // principal that forced the activation; empty if nothing was forced
}

// checkReplacement runs the compatibility check for a module that is to
// replace the active module of a type. An incompatibility is an error, or a
// warning if the caller sets force. If accept is set, entity states that
// differ from the active module's states count as intended.
func (s *handler) checkReplacement(ctx context.Context, entityType string, digest journal.Digest, force, accept bool) (out replacementCheck, err error) {
	if t, err := s.Types.Lookup(ctx, entityType); err != nil || t.Module == digest {
		return out, nil // no module serves the type, or this module already does
	}
	m, err := s.Modules.Get(ctx, digest)
	if err != nil {
		return out, err
	}
	out.warnings = s.unservedTimers(ctx, entityType, &m)
	if s.Compatibility == nil {
		return out, nil
	}
	kept, err := s.Modules.Verification(ctx, entityType, digest)
	if err != nil {
		return out, err
	}
	found, err := s.checkShards(ctx, digest, &modulev1.CheckCompatibilityRequest{EntityType: entityType})
	if err != nil {
		return out, err
	}
	if n := found.GetUncheckedShards(); n > 0 {
		out.warnings = append(out.warnings, fmt.Sprintf("%s: not all stored events were checked in %d shards", entityType, n))
	}
	for _, refused := range []*status.RefusedError{unlistedError(entityType, found), failingSample(entityType, found), kept.Refusal(entityType, accept)} {
		switch {
		case refused == nil:
		case !force:
			return out, refused
		default:
			out.warnings = append(out.warnings, refused.Reason)
			out.forcedBy = authorize.Caller(ctx)
		}
	}
	return out, nil
}

// unlistedError returns nil if the module lists all event types that are stored.
func unlistedError(entityType string, found *modulev1.CheckCompatibilityResponse) *status.RefusedError {
	missing := found.GetMissing()
	if len(missing) == 0 {
		return nil
	}
	var names, counted []string
	for _, m := range missing[:min(shownEventTypes, len(missing))] {
		names = append(names, m.GetEventType())
		counted = append(counted, fmt.Sprintf("%s (%d)", m.GetEventType(), m.GetCount()))
	}
	if more := len(missing) - len(names); more > 0 {
		counted = append(counted, fmt.Sprintf("%d more", more))
	}
	return &status.RefusedError{
		Reason: fmt.Sprintf("%s: the module does not list the types of stored events: %s; entities with such events may fail", entityType, strings.Join(counted, ", ")),
		Name:   status.RefusedEvents,
		About:  map[string]string{"entityType": entityType, "eventTypes": strings.Join(names, ","), "missing": fmt.Sprint(len(missing))},
	}
}

// failingSample returns nil if the module failed on none of the replayed entities.
func failingSample(entityType string, found *modulev1.CheckCompatibilityResponse) *status.RefusedError {
	if len(found.GetFaults()) == 0 {
		return nil
	}
	f := found.GetFaults()[0]
	return &status.RefusedError{
		Reason: fmt.Sprintf("%s: the module fails on %d of %d sampled entities; on %s at event %d (%s): %s",
			entityType, len(found.GetFaults()), found.GetEntities(), f.GetEntityId(), f.GetSequence(), cmp.Or(f.GetEventType(), "unknown"), f.GetMessage()),
		Name: status.RefusedFault,
		About: map[string]string{
			"entityType": entityType, "entityId": f.GetEntityId(), "sequence": fmt.Sprint(f.GetSequence()), "eventType": f.GetEventType(),
		},
	}
}

// HasEntities reports whether entities of a type exist, by asking the leaders of
// all shards.
func (s *handler) HasEntities(ctx context.Context, entityType string, fence uint64) (bool, error) {
	t, err := s.Types.Lookup(ctx, entityType)
	if s.Compatibility == nil || err != nil {
		return true, err
	}
	return checkPresent(ctx, s.Entities.Shards(), touchedShards, func(ctx context.Context, shard sharding.ShardID) (*modulev1.CheckCompatibilityResponse, error) {
		return s.checkShard(ctx, modules.CompatibilityQuery{Shard: shard, EntityType: entityType, Digest: t.Module, Budget: checkBudget, PresenceOnly: true, MinRevision: fence})
	})
}
