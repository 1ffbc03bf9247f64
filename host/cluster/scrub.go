package cluster

import (
	"context"
	"log/slog"

	"github.com/hostd/hostd/journal/store"
)

// ScrubTables verifies the store's tables until ctx ends. Damage in a table may
// affect any shard, so ScrubTables calls stop, which must stop every replica of
// the node. It returns an error if the store was closed.
func ScrubTables(ctx context.Context, s *store.Store, bytesPerSecond int64, stop func(error), logger *slog.Logger) error {
	return s.Scrub(ctx, store.ScrubOptions{
		BytesPerSecond: bytesPerSecond,
		Damaged: func(err error) {
			logger.Error("the scrub of the store found damage", "error", err)
			stop(err)
		},
	})
}
