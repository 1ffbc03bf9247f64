package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// askSeeds is how often a member asks its seeds which cluster they belong to.
const askSeeds = 10 * time.Second

// SeedWatch detects that a node and its seeds belong to different clusters.
type SeedWatch struct {
	Entrance entrance
	Cluster  string
	Logger   *slog.Logger

	strange atomic.Pointer[error]
}

// Run compares this node's cluster with its seeds' clusters until ctx ends.
// If nodes name each other but belong to different clusters, either each of them
// has bootstrapped its own cluster, or they were combined by mistake.
func (w *SeedWatch) Run(ctx context.Context) {
	every := time.NewTicker(askSeeds)
	defer every.Stop()
	for {
		own, others := w.Entrance.Entry().clusters(ctx)
		var strange error
		for seed, cluster := range others {
			err := fmt.Errorf("this node belongs to cluster %s, but its seed %s to cluster %s: correct the seeds or the data directory", w.Cluster, seed, cluster)
			w.Logger.Error(err.Error())
			if !own {
				strange = err
			}
		}
		// A seed that does not answer changes nothing.
		if own || strange != nil {
			w.strange.Store(&strange)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// Strange returns an error if seeds answered and all of them are in another
// cluster.
func (w *SeedWatch) Strange() error {
	if err := w.strange.Load(); err != nil {
		return *err
	}
	return nil
}
