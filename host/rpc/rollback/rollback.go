// Package rollback looks at what entities have written before their types go
// back to the module that served before, and says what that module fails on. It
// starts no goroutine.
package rollback

import (
	"context"
	"fmt"
	"strings"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
)

// shownEntities bounds those that a refusal names.
const shownEntities = 16

// Looks are those of one rollback. They are for one goroutine at a time.
type Looks struct {
	// Touched folds by the module all entities of the type that others than those
	// before have written.
	Touched func(ctx context.Context, t modules.RollbackType) (*modulev1.FitResponse, error)
	Force   bool
	Remarks []string // what was passed over because of Force
}

// Check refuses a type that must not go back, or says who forces it.
func (l *Looks) Check(ctx context.Context, t modules.RollbackType) (forcedBy string, err error) {
	refused, err := l.look(ctx, t)
	switch {
	case err != nil:
		return "", err
	case refused == nil:
		return "", nil
	case !l.Force:
		refused.Reason += "; nothing is changed, and --force goes back all the same"
		return "", refused
	}
	l.Remarks = append(l.Remarks, refused.Reason)
	return authorize.Caller(ctx), nil
}

// look is nil where the module fails on none of the entities.
func (l *Looks) look(ctx context.Context, t modules.RollbackType) (*status.RefusedError, error) {
	found, err := l.Touched(ctx, t)
	switch {
	case err != nil:
		return nil, err
	case found.GetFailing() > 0:
		return failing(t.Name, found), nil
	case found.GetUnreadShards() > 0:
		return &status.RefusedError{
			Reason: fmt.Sprintf("%s: not all entities that were written since the module served were looked at, in %d shards", t.Name, found.GetUnreadShards()),
			Name:   status.RefusedFault,
			About:  map[string]string{"entityType": t.Name, "unreadShards": fmt.Sprint(found.GetUnreadShards())},
		}, nil
	}
	return nil, nil
}

// failing names the entities that a module fails on.
func failing(entityType string, found *modulev1.FitResponse) *status.RefusedError {
	var ids, shown []string
	for _, f := range found.GetFaults()[:min(shownEntities, len(found.GetFaults()))] {
		ids = append(ids, f.GetEntityId())
		shown = append(shown, fmt.Sprintf("%s at event %d (%s): %s", f.GetEntityId(), f.GetSequence(), f.GetEventType(), f.GetMessage()))
	}
	if more := found.GetFailing() - uint64(len(shown)); more > 0 {
		shown = append(shown, fmt.Sprintf("%d more", more))
	}
	return &status.RefusedError{
		Reason: fmt.Sprintf("%s: the module before fails on %d of %d entities that were written since: %s", entityType, found.GetFailing(), found.GetEntities(), strings.Join(shown, "; ")),
		Name:   status.RefusedFault,
		About:  map[string]string{"entityType": entityType, "entityIds": strings.Join(ids, ","), "failing": fmt.Sprint(found.GetFailing())},
	}
}

// Texts are digests as requests have them.
func Texts(digests []journal.Digest) (out []string) {
	for _, d := range digests {
		out = append(out, d.String())
	}
	return out
}
