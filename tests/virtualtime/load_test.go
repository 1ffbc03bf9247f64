package virtualtime

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/offline"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/workload"
)

// verdictTime limits the real time for checking the history of one entity.
const verdictTime = 20 * time.Second

// pace is the pause of a caller between two calls.
const pace = 40 * time.Millisecond

// push uploads and activates the guests.
func (w *world) push() {
	w.t.Helper()
	for _, name := range guests {
		if _, err := w.client().Upload(w.t.Context(), modules[name], true); err != nil {
			w.t.Fatalf("push %s: %v", name, err)
		}
	}
}

// loaded bootstraps a cluster and starts a load with the given pause between
// calls.
func (w *world) loaded(rest time.Duration) {
	w.t.Helper()
	w.found()
	w.push()
	w.begin(rest)
}

// begin starts the load.
func (w *world) begin(rest time.Duration) {
	w.history = history.New()
	w.load = workload.Start(workload.Options{
		Client: w.client().Client, History: w.history, Seed: *seed, Callers: 6, Streams: 2, Entities: 5, Types: guests, Pause: rest,
	})
	w.acknowledged(20)
}

// acknowledged lets time pass until the given number of further calls have
// succeeded.
func (w *world) acknowledged(more int) {
	w.t.Helper()
	want := w.load.Acknowledged() + more
	w.until("calls are answered", func() bool { return w.load.Acknowledged() >= want })
}

// judge ends the load, and compares the answers that callers received with the
// data on every replica. The remaining checks run after the bubble has ended.
func (w *world) judge() {
	w.t.Helper()
	w.acknowledged(20)
	if err := w.load.Stop(); err != nil {
		w.t.Error(err)
	}
	w.load = nil
	w.settled()
	w.level()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	events, err := workload.ReadBack(ctx, w.client().Client, w.history)
	if err != nil {
		w.t.Error(err)
	}
	w.t.Logf("%d events; %d answered, %d of them again, %d rejected, %d failed, %d unknown", events, w.history.Count(history.OK),
		w.history.Duplicates(), w.history.Count(history.Rejected), w.history.Count(history.Failed), w.history.Count(history.Unknown))
}

// level waits until all replicas of each shard have applied the same entries.
func (w *world) level() {
	w.t.Helper()
	w.until("all replicas of a shard are as far", func() bool {
		far := map[uint32]uint64{}
		for i := range w.nodes {
			for _, s := range w.shards(i) {
				if known, seen := far[s.GetShardId()]; seen && known != s.GetAppliedIndex() {
					return false
				}
				far[s.GetShardId()] = s.GetAppliedIndex()
			}
		}
		return len(far) >= int(w.opts.shards)
	})
}

// check checks that a history is linearizable. It runs outside of the bubble,
// because inside it the time limit of the search would have no effect.
func check(t *testing.T, h *history.History) {
	t.Helper()
	if h == nil {
		return
	}
	checked, err := h.Linearizable(verdictTime, guests...)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d operations are linearizable", checked)
}

// verify runs the offline check on the data directories of the stopped nodes:
// the chain of every entity, checksums, and the agreement of logs and stores.
func verify(t *testing.T, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		var out strings.Builder
		if faults, err := offline.Verify(context.Background(), dir, &out); err != nil || faults > 0 {
			t.Errorf("%s: %d faults, %v\n%s", filepath.Base(dir), faults, err, out.String())
		}
		checkWarm(t, dir)
	}
}
