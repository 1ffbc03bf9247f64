package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
)

const (
	// rowCheckRest is the pause after each thousand rows, which need one or two
	// milliseconds. That limits the check to about a hundredth of a processor.
	rowCheckRest = 200 * time.Millisecond
	// rowCheckBurst is how long a shard is checked with pauses of
	// rowCheckRest. While a check runs, the store cannot drop old versions
	// of rows, so after rowCheckBurst the pauses become shorter.
	rowCheckBurst = 30 * time.Second
	// rowCheckInterval is the time between the end of one round and the next.
	rowCheckInterval = 10 * time.Minute
)

// CheckRows compares the rows of all shards with their checksums, in rounds,
// until ctx ends. A shard that fails the comparison stops.
func CheckRows(ctx context.Context, machine *eventlog.Machine, logger *slog.Logger) {
	for restFor(ctx, rowCheckInterval) == nil {
		shards := machine.Shards()
		slices.Sort(shards)
		for _, shard := range shards {
			began := time.Now()
			err := machine.Audit(ctx, shard, func(ctx context.Context) error {
				return restFor(ctx, time.Duration(float64(rowCheckRest)/(1+float64(time.Since(began))/float64(rowCheckBurst))))
			})
			if errors.Is(err, journal.ErrDamaged) {
				logger.Error("a consistency check found damage", "shard_id", uint64(shard), "error", err)
			}
			if restFor(ctx, rowCheckRest) != nil {
				return
			}
		}
	}
}

func restFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
