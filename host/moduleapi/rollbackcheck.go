package moduleapi

import (
	"context"
	"fmt"
	"strings"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
)

// shownEntities limits the entities that a rejection names.
const shownEntities = 16

// RollbackCheck checks, before a rollback, the entities that were written since
// the previous module served their type. It rejects the rollback if that module
// fails on one of them. It must be used by one goroutine at a time.
type RollbackCheck struct {
	// Touched replays, with the previous module, all entities of the type that
	// modules other than t.Before have written.
	Touched func(ctx context.Context, t modules.RollbackType) (*modulev1.CheckCompatibilityResponse, error)
	Force   bool
	Remarks []string // failures that Force overrides
}

// Check returns an error if a type must not be rolled back. If the caller
// forces the rollback, it returns that caller instead.
func (l *RollbackCheck) Check(ctx context.Context, t modules.RollbackType) (forcedBy string, err error) {
	refused, err := l.look(ctx, t)
	switch {
	case err != nil:
		return "", err
	case refused == nil:
		return "", nil
	case !l.Force:
		refused.Reason += "; nothing was changed, and --force rolls back anyway"
		return "", refused
	}
	l.Remarks = append(l.Remarks, refused.Reason)
	return authorize.Caller(ctx), nil
}

// look returns an error that lists the entities on which the module fails, or
// nil if there are none.
func (l *RollbackCheck) look(ctx context.Context, t modules.RollbackType) (*status.RefusedError, error) {
	found, err := l.Touched(ctx, t)
	switch {
	case err != nil:
		return nil, err
	case found.GetFaultyEntities() > 0:
		return failing(t.Name, found), nil
	case found.GetUncheckedShards() > 0:
		return &status.RefusedError{
			Reason: fmt.Sprintf("%s: not all entities written since the switch were checked in %d shards", t.Name, found.GetUncheckedShards()),
			Name:   status.RefusedFault,
			About:  map[string]string{"entityType": t.Name, "unreadShards": fmt.Sprint(found.GetUncheckedShards())},
		}, nil
	}
	return nil, nil
}

// failing names the entities on which a module fails.
func failing(entityType string, found *modulev1.CheckCompatibilityResponse) *status.RefusedError {
	var ids, shown []string
	for _, f := range found.GetFaults()[:min(shownEntities, len(found.GetFaults()))] {
		ids = append(ids, f.GetEntityId())
		shown = append(shown, fmt.Sprintf("%s at event %d (%s): %s", f.GetEntityId(), f.GetSequence(), f.GetEventType(), f.GetMessage()))
	}
	if more := found.GetFaultyEntities() - uint64(len(shown)); more > 0 {
		shown = append(shown, fmt.Sprintf("%d more", more))
	}
	return &status.RefusedError{
		Reason: fmt.Sprintf("%s: the previous module fails on %d of %d entities written since the switch: %s", entityType, found.GetFaultyEntities(), found.GetEntities(), strings.Join(shown, "; ")),
		Name:   status.RefusedFault,
		About:  map[string]string{"entityType": entityType, "entityIds": strings.Join(ids, ","), "failing": fmt.Sprint(found.GetFaultyEntities())},
	}
}

// digestTexts returns digests in the form of API requests.
func digestTexts(digests []journal.Digest) (out []string) {
	for _, d := range digests {
		out = append(out, d.String())
	}
	return out
}
