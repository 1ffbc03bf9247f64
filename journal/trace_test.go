package journal_test

import (
	"errors"
	"testing"

	"github.com/hostd/hostd/journal"
)

// TestTraceContexts: an encoded context decodes to the same value, and an
// invalid context is rejected.
func TestTraceContexts(t *testing.T) {
	want := journal.TraceContext{Trace: [16]byte{1, 15: 16}, Span: [8]byte{17, 7: 24}, Flags: 1}
	data := journal.AppendTraceContext([]byte("before"), &want)[len("before"):]
	if len(data) != journal.TraceContextBytes {
		t.Errorf("%d bytes", len(data))
	}
	if got, err := journal.DecodeTraceContext(data); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for name, bad := range map[string][]byte{
		"nothing":  nil,
		"short":    data[:journal.TraceContextBytes-1],
		"long":     append(data[:len(data):len(data)], 0),
		"no trace": journal.AppendTraceContext(nil, &journal.TraceContext{Span: want.Span, Flags: 1}),
		"no span":  journal.AppendTraceContext(nil, &journal.TraceContext{Trace: want.Trace, Flags: 1}),
	} {
		if got, err := journal.DecodeTraceContext(bad); !errors.Is(err, journal.ErrDamaged) || got != (journal.TraceContext{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestTracesAreNoPartOfTheChain: tracing does not change a history's hash.
func TestTracesAreNoPartOfTheChain(t *testing.T) {
	var chain journal.Chain
	r := records()[0]
	before := chain.After(&r)
	r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionTrace, Data: make([]byte, journal.TraceContextBytes)})
	if after := chain.After(&r); after != before {
		t.Errorf("%s is %s with a trace", before, after)
	}
}
