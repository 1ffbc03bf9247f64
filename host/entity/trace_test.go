package entity

import (
	"testing"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestRecordsKeepTheirTrace: of commands whose traces are sampled, from the
// level on, and the chain and the reply are the same either way.
func TestRecordsKeepTheirTrace(t *testing.T) {
	in := journal.TraceContext{Trace: [16]byte{1, 15: 16}, Span: [8]byte{17, 7: 24}, Flags: 1}
	var chain journal.Hash
	var reply string
	for i, c := range []struct {
		level sharding.Level
		in    *request.Trace
		keeps bool
	}{
		{sharding.LevelRecordTrace, &request.Trace{TraceContext: in}, true},
		{sharding.LevelRecordTrace, nil, false},
		{sharding.LevelRecordTrace - 1, &request.Trace{TraceContext: in}, false},
	} {
		w := quiet(t)
		w.core.opts.Level = func() sharding.Level { return c.level }
		res := w.submit(&request.Request{Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "add", Payload: []byte("1"), ID: "c", Trace: c.in})
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		rec := w.log[len(w.log)-1]
		data := rec.Section(journal.SectionTrace)
		if got, err := journal.DecodeTraceContext(data); c.keeps && (err != nil || got != in) || !c.keeps && data != nil {
			t.Errorf("case %d: the record has the trace %x, %v", i, data, err)
		}
		rec.Term, rec.RecordedAt = 0, 0
		var links journal.Chain
		if link := links.After(&rec); i == 0 {
			chain, reply = link, string(res.Payload)
		} else if link != chain || string(res.Payload) != reply {
			t.Errorf("case %d: the chain or the reply %q is another one", i, res.Payload)
		}
	}
}
