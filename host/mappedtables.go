package host

import (
	"context"
	"time"

	"github.com/hostd/hostd/journal/store"
)

const (
	mappedPeriod = 5 * time.Second
	// mappedBytes is the limit on memory-mapped file pages of the process.
	// Above it the pages of the store's tables are released. The program takes
	// 30 MiB of it and the logs of memtables about as much; the rest is for
	// tables that are being built and read.
	mappedBytes = 96 << 20
)

// releaseMapped keeps mapped pages of the journal's tables below mappedBytes
// until ctx ends.
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
			n.logger.Warn("cannot release the memory of mapped tables", "error", err)
			return
		}
	}
}
