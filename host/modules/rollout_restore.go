package modules

import (
	"context"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Restore begins the rollout that a type had in another cluster, with the same
// part and the same entities that stay, and returns it as stored here; it
// returns nil if nothing is left of the rollout. It does not proceed
// automatically: an active rollout is restored as paused. A type that already
// has a rollout keeps it. Restore returns once every node that is up serves the
// type accordingly. proved lists the modules whose snapshots the rollout's
// module can read, as the other cluster has proved.
func (r *Rollouts) Restore(ctx context.Context, entityType string, was meta.Rollout, proved []meta.Digest) (*meta.Rollout, error) {
	next, kind, left := restoreRollout(was)
	if !left {
		return nil, nil
	}
	err := r.again(ctx, func(view *meta.View) error {
		b, _ := view.Activation(entityType)
		if b.Rollout != nil {
			return r.awaitServed(ctx, b.Revision)
		}
		_, err := r.rebind(ctx, journal.Digest(next.Digest), func(context.Context) ([]byte, error) {
			put := meta.PutRollout{EntityType: entityType, Over: b.Revision, Rollout: &next}
			if view.ClusterVersion() >= sharding.VersionSnapshotProofs {
				put.Truncated = proved
			}
			return by(view, next.By, r.puts(kind, []meta.PutRollout{put})), nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	b, _ := r.metadata.View().Activation(entityType)
	return b.Rollout, nil
}

// restoreRollout returns the first state of a rollout of another cluster and the kind
// of that change. left is false if its module no longer serves any entity.
func restoreRollout(was meta.Rollout) (next meta.Rollout, kind meta.ChangeKind, left bool) {
	next = was
	next.First, next.Began, next.Snapshots, next.DueAt, next.BackForcedBy = next.Part, 0, nil, 0, ""
	next.Truncated, next.Proved = nil, false
	if next.Part == (meta.Part{}) {
		next.State, next.Steps = meta.RolloutAborted, nil
		return next, "", len(next.Stay) > 0
	}
	next.State = meta.RolloutPaused
	if was.State != meta.RolloutPaused {
		next.Note = "it was " + string(was.State) + " in the cluster that was imported"
	}
	return next, meta.ChangeCanary, true
}
