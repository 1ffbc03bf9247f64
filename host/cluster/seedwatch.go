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

// SeedWatch notices that a node and its seeds belong to several clusters.
type SeedWatch struct {
	Entry   func() Entry
	Cluster string
	Logger  *slog.Logger

	strange atomic.Pointer[error]
}

// Run compares the cluster of this node with that of its seeds until ctx
// ends. Two nodes that name each other and belong to two clusters were told to
// found one each, or were put together by mistake.
func (w *SeedWatch) Run(ctx context.Context) {
	every := time.NewTicker(askSeeds)
	defer every.Stop()
	for {
		own, others := w.Entry().Clusters(ctx)
		var strange error
		for seed, cluster := range others {
			err := fmt.Errorf("this node belongs to cluster %s, its seed %s to cluster %s: one of the two is there by mistake", w.Cluster, seed, cluster)
			w.Logger.Error(err.Error())
			if !own {
				strange = err
			}
		}
		// A seed that does not answer says nothing new.
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

// Strange says that seeds answered, and all of another cluster.
func (w *SeedWatch) Strange() error {
	if err := w.strange.Load(); err != nil {
		return *err
	}
	return nil
}
