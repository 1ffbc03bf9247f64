package eventlog

import (
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Exported messages have no trace context, so that a cluster of an earlier
// version can read them.
func TestTracesAreNotExported(t *testing.T) {
	m := journal.Message{
		Source: sharding.EntityID{Type: "a", ID: "s"}, Destination: sharding.EntityID{Type: "b", ID: "d"}, Number: 5, Command: "go",
	}
	plain := store.AppendMessage(nil, &m)
	m.Trace = &journal.TraceContext{Trace: [16]byte{1}, Span: [8]byte{2}, Flags: 1}
	for _, body := range [][]byte{plain, store.AppendMessage(nil, &m)} {
		given := 0
		p := parts{fn: func(kind journal.PartKind, data []byte) error {
			given++
			got, err := journal.DecodeTransfer(data)
			if err != nil || kind != journal.PartMessage || got.Entity != m.Source || string(got.Body) != string(plain) {
				t.Errorf("%d: %+v, %v", kind, got, err)
			}
			return nil
		}}
		if err := p.transfer(journal.PartMessage, store.AppendItemID(nil, journal.ItemID{Index: 1}), body); err != nil || given != 1 {
			t.Errorf("%d parts, %v", given, err)
		}
	}
}
