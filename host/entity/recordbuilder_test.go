package entity

import (
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
)

// TestRecordBuilderEncodesItsInput checks that each record decodes to its input, with
// sections sorted by kind, independently of the previous record.
func TestRecordBuilderEncodesItsInput(t *testing.T) {
	var b recordBuilder
	event := abi.Output{Events: []abi.Event{{Type: []byte("added"), Payload: []byte("1")}}}
	for _, tt := range []struct {
		name   string
		out    abi.Output
		exists bool
		want   []string // types of the events
		flags  bool     // the record has a tombstone
	}{
		{"an event", event, true, []string{"added"}, false},
		{"a state", abi.Output{HasState: true, State: []byte("s")}, true, []string{"state.v2"}, false},
		{"nothing", abi.Output{}, true, nil, false},
		{"the end of one that exists", abi.Output{Delete: true}, true, []string{journal.TombstoneEvent}, true},
		{"the end of one that does not", abi.Output{Delete: true}, false, nil, true},
		{"an event and the end", abi.Output{Events: event.Events, Delete: true}, false, []string{"added", journal.TombstoneEvent}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.Begin(journal.Record{CommandID: "c", Expected: 7})
			if n := b.Messages([]abi.Send{{EntityType: []byte("t"), EntityID: []byte("x"), Command: []byte("go")}}); n < 4 {
				t.Errorf("a message takes %d bytes", n)
			}
			b.Fuel(3)
			b.Evolve(&tt.out, "state.v2", tt.exists)
			link, encoded := b.End()
			var got journal.Record
			raw, rest, err := journal.SplitRecord(encoded)
			if err == nil {
				err = got.Decode(raw)
			}
			if err != nil || len(rest) > 0 {
				t.Fatalf("%v, %d bytes are left", err, len(rest))
			}
			var chain journal.Chain
			if link != chain.After(&got) {
				t.Error("the hash of the chain differs")
			}
			if tombstone := got.Flags&journal.FlagTombstone != 0; tombstone != tt.flags || len(got.Events) != len(tt.want) {
				t.Fatalf("%d events, tombstone %v", len(got.Events), tombstone)
			}
			for i, ev := range got.Events {
				if ev.Type != tt.want[i] {
					t.Errorf("event %d is %q, want %q", i, ev.Type, tt.want[i])
				}
			}
			if len(got.Sections) != 2 || got.Sections[0].Kind > got.Sections[1].Kind {
				t.Errorf("sections %+v", got.Sections)
			}
		})
	}
}

// TestRecordFitsLeavesRoomForHeader checks that recordFits leaves room for the
// record's own fields.
func TestRecordFitsLeavesRoomForHeader(t *testing.T) {
	out := abi.Output{State: make([]byte, maxEntryBytes-room)}
	if !recordFits(0, &out) || recordFits(1, &out) {
		t.Error("an entry is full at a different size")
	}
}

// TestRecordBuilderAddsTraceSection checks that a record has the span of its command, and
// that the next record without a span has none.
func TestRecordBuilderAddsTraceSection(t *testing.T) {
	var b recordBuilder
	in := journal.TraceContext{Trace: [16]byte{1}, Span: [8]byte{2}, Flags: 1}
	for _, span := range []*journal.TraceContext{&in, nil} {
		b.Begin(journal.Record{CommandID: "c"})
		b.Trace(span)
		b.Fuel(3)
		_, encoded := b.End()
		var got journal.Record
		if err := got.Decode(encoded); err != nil {
			t.Fatal(err)
		}
		data := got.Section(journal.SectionTrace)
		if span == nil {
			if data != nil || len(got.Sections) != 1 {
				t.Errorf("without a span: %+v", got.Sections)
			}
		} else if c, err := journal.DecodeTraceContext(data); err != nil || c != in {
			t.Errorf("%+v, %v", c, err)
		}
	}
}
