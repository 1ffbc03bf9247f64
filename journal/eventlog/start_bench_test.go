package eventlog_test

import (
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
)

// One operation opens a Machine on a store of up to 200,000 entities in 64
// shards, which reads all entity rows.
func BenchmarkOpen(b *testing.B) {
	const entities = 200_000
	st := openStore(b, filepath.Join(b.TempDir(), "store"), store.Options{})
	m := openMachine(b, st, 0, eventlog.Options{MaxEntityRows: 1000})
	l := newLoad(64, entities/64, 8)
	for done := 0; done < entities; done += 8000 {
		ids, entries := l.prepare(8000)
		for i := range ids {
			m.Apply(ids[i], entries[i:i+1])
		}
		flush(b, m, st)
	}
	heads := uint64(0)
	for _, id := range m.Shards() {
		heads += m.EntityRows(id)
	}
	for b.Loop() {
		all := &liar{st, nil}
		if _, err := eventlog.OpenOn(all, st.MaxVersion(), eventlog.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(heads), "ns/entity")
}
