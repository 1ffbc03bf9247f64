package host

import (
	"context"
	"time"

	"github.com/hostd/hostd/journal/store"
)

const (
	mappedPeriod = 5 * time.Second
	// mappedBytes is how much of files a process may have in memory before the
	// tables among them are let go of: the program has 30 MiB, the logs of
	// memtables as much, and with the rest tables are built and read.
	mappedBytes = 96 << 20
)

// releaseMapped keeps the journal's tables from filling the memory of the
// process, until ctx ends.
func (n *Node) releaseMapped(ctx context.Context) {
	every := time.NewTicker(mappedPeriod)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		mapped, err := store.MappedBytes()
		if err == nil && mapped > mappedBytes {
			_, err = n.replicas.store.ReleaseMapped()
		}
		if err != nil {
			n.logger.Warn("mapped tables stay in memory", "error", err)
			return
		}
	}
}
