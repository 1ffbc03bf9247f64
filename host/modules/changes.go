package modules

import (
	"context"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Changes returns the latest changes of the modules that serve a type, oldest
// first. It waits until this node has applied all earlier metadata decisions.
// It fails with request.ErrUnknownType.
func (s *Service) Changes(ctx context.Context, entityType string) (out []ActivationChange, err error) {
	if err := s.metadata.CatchUp(ctx); err != nil {
		return nil, err
	}
	b, bound := s.metadata.View().Activation(entityType)
	if !bound {
		return nil, request.ErrUnknownType
	}
	for _, c := range b.ChangeLog() {
		out = append(out, ActivationChange{
			Revision: c.Revision, ChangedAt: time.Unix(0, c.At), Kind: c.Kind, Digest: journal.Digest(c.Digest),
			ChangedBy: c.By, Forced: c.Forced, RolledBackRevision: c.TookBack,
			Part: meta.Part{Share: c.Share, Prefix: c.Prefix},
		})
	}
	return out, nil
}

// by adds the principal that requested a command to the command, if the
// cluster version stores it.
func by(view *meta.View, who string, command []byte) []byte {
	if who == "" || view.ClusterVersion() < sharding.VersionChanges {
		return command
	}
	return meta.WithPrincipal(command, who)
}

// ActivationChange is one change of the module that serves an entity type.
type ActivationChange struct {
	Revision           uint64
	ChangedAt          time.Time
	Kind               meta.ChangeKind
	Digest             journal.Digest
	ChangedBy          string // empty if it is not known
	Forced             bool
	RolledBackRevision uint64
	meta.Part
}
