package entity

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestRecordStoresSampledTrace checks that records have their sampled traces
// if the cluster version supports traces, and that the hash chain and the
// reply do not depend on it.
func TestRecordStoresSampledTrace(t *testing.T) {
	in := journal.TraceContext{Trace: [16]byte{1, 15: 16}, Span: [8]byte{17, 7: 24}, Flags: 1}
	var chain journal.Hash
	var reply string
	for i, c := range []struct {
		level sharding.ClusterVersion
		in    *request.Trace
		keeps bool
	}{
		{sharding.VersionRecordTrace, &request.Trace{TraceContext: in}, true},
		{sharding.VersionRecordTrace, nil, false},
		{sharding.VersionRecordTrace - 1, &request.Trace{TraceContext: in}, false},
	} {
		w := quiet(t)
		w.core.opts.ClusterVersion = func() sharding.ClusterVersion { return c.level }
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
			t.Errorf("case %d: the chain or the reply %q differs", i, res.Payload)
		}
	}
}

// TestGuestCallTimesAreReported checks that commands and queries report the times and the
// module of their guest call.
func TestGuestCallTimesAreReported(t *testing.T) {
	w := quiet(t)
	for _, r := range []*request.Request{
		{Kind: request.Command, Name: "add", ID: "c", Payload: []byte("1")},
		{Kind: request.Query, Name: "sum"},
		{Kind: request.StaleQuery, Name: "sum"},
	} {
		r.Entity = sharding.EntityID{Type: "tally", ID: "x"}
		if res := w.submit(r); res.Err != nil {
			t.Fatal(res.Err)
		}
		v := r.Exec.CallTimes()
		if v.Module == nil || *v.Module != w.typ.Digest || v.Since.IsZero() || v.Began.Before(v.Since) || v.Ended.Before(v.Began) {
			t.Errorf("%s of kind %d: %+v", r.Name, r.Kind, v)
		}
	}
}

// TestFaultLogHasSpan checks that the log message of a fault has the
// span of the command, if there is one.
func TestFaultLogHasSpan(t *testing.T) {
	in := &request.Trace{TraceContext: journal.TraceContext{Trace: [16]byte{1, 15: 16}, Span: [8]byte{17, 7: 24}, Flags: 1}}
	for _, c := range []struct {
		in   *request.Trace
		want int
	}{{in, 1}, {nil, 0}} {
		var log bytes.Buffer
		w := quiet(t)
		w.core.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		res := w.submit(&request.Request{Kind: request.Command, Entity: sharding.EntityID{Type: "tally", ID: "x"}, Name: "trap", ID: "c", Payload: []byte("1"), Trace: c.in})
		if res.Err == nil || strings.Count(log.String(), "guest fault") != 1 {
			t.Fatalf("%v, logged:\n%s", res.Err, &log)
		}
		if n := strings.Count(log.String(), "trace_id=01000000000000000000000000000010 span_id=1100000000000018"); n != c.want || strings.Count(log.String(), "trace_id") != n {
			t.Errorf("logged %d times in the span:\n%s", n, &log)
		}
	}
}

// firings makes the spans of timers, all with the same id.
type firings struct{ began, ended int }

var inFiring = journal.TraceContext{Trace: [16]byte{30, 15: 31}, Span: [8]byte{32, 7: 33}, Flags: 1 | journal.TraceAfterTimer}

func (f *firings) Fire(r *request.Request) timers.Span {
	f.began++
	r.Trace = &request.Trace{TraceContext: inFiring}
	return f
}

func (f *firings) End(*request.Request) { f.ended++ }

// TestTimersAreTraced checks that the record of a timer that was set within a
// span has a trace. The trace has the span of the firing, and a flag that
// says that a timer caused the record. Without a span maker, the trace has
// the span of the command that set the timer. Other timers have no trace.
func TestTimersAreTraced(t *testing.T) {
	set := journal.TraceContext{Trace: [16]byte{1, 15: 16}, Span: [8]byte{17, 7: 24}, Flags: 1}
	after := set
	after.Flags |= journal.TraceAfterTimer
	made := &firings{}
	for name, c := range map[string]struct {
		set   *journal.TraceContext
		spans []timers.Spans
		want  *journal.TraceContext
	}{
		"set in a span":        {&set, []timers.Spans{made}, &inFiring},
		"nobody makes spans":   {&set, nil, &after},
		"set without":          {nil, []timers.Spans{&firings{}}, nil},
		"set without, no span": {nil, nil, nil},
	} {
		a := pacedAlarms(t, 1, 0, c.spans...)
		a.core.opts.ClusterVersion = func() sharding.ClusterVersion { return sharding.VersionRecordTrace }
		a.slow = 5 * time.Millisecond
		a.set(1)
		a.timers[1][0].Trace = c.set
		a.lead(1)
		var got [][]byte
		for n := 0; a.left() > 0; n++ {
			if n > 10_000 {
				t.Fatalf("%s: the timer never fires", name)
			}
			if a.step(); len(a.entries) > 0 && len(got) == 0 {
				got = tracesIn(t, a.entries[0].data)
			}
		}
		var want []byte
		if c.want != nil {
			want = journal.AppendTraceContext(nil, c.want)
		}
		if len(got) != 1 || !bytes.Equal(got[0], want) {
			t.Errorf("%s: the records name %x, want %x", name, got, want)
		}
	}
	if made.began != 1 || made.ended != 1 {
		t.Errorf("%d spans, %d of them ended", made.began, made.ended)
	}
}

// tracesIn returns the trace sections of an entry's records.
func tracesIn(t *testing.T, entry []byte) (all [][]byte) {
	e, err := journal.DecodeEntry(entry)
	for b := e.Body; err == nil && len(b) > 0; {
		var raw []byte
		var r journal.Record
		if raw, b, err = journal.SplitRecord(b); err == nil {
			err = r.Decode(raw)
		}
		all = append(all, bytes.Clone(r.Section(journal.SectionTrace)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}
