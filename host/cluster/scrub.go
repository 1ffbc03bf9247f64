package cluster

import (
	"context"
	"log/slog"

	"github.com/hostd/hostd/journal/store"
)

// ScrubTables looks the store through until ctx ends. Damage in a table is damage to
// whatever the store holds: stop is told, and every replica of the node stops, as
// where a read or an entry meets it. An error is the store's end.
func ScrubTables(ctx context.Context, s *store.Store, bytesPerSecond int64, stop func(error), logger *slog.Logger) error {
	return s.Scrub(ctx, store.ScrubOptions{
		BytesPerSecond: bytesPerSecond,
		Damaged: func(err error) {
			logger.Error("the scrub of the store has found damage", "error", err)
			stop(err)
		},
	})
}
