package abi

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestParseOutputEverything(t *testing.T) {
	send := Send{EntityType: []byte("account"), EntityID: []byte("a2"), Command: []byte("deposit"), Payload: []byte("5")}
	asking := send
	asking.WantsAnswer, asking.OnReply, asking.OnReject = true, []byte("paid"), []byte("unpaid")
	named := asking
	named.Token = []byte{0, 1, 2}
	timer := Timer{Name: []byte("close"), Due: 5, Command: []byte("close"), Payload: []byte("{}")}

	frames := AppendEvent(nil, "added", []byte("1"))
	frames = AppendTag(frames, "a")
	frames = AppendReply(frames, []byte("r"))
	frames = AppendTag(frames, "b")
	frames = AppendEvent(frames, "reset", nil)
	frames = AppendSend(frames, send)
	frames = AppendSetTimer(frames, timer)
	frames = AppendCancelTimer(frames, "close")
	frames = AppendSend(frames, asking)
	frames = AppendSend(frames, named)
	frames = AppendTag(frames, "c")
	frames = AppendPassivate(frames)
	frames = AppendDelete(frames)

	limits := DefaultLimits()
	var out Output
	for range 2 { // the second run reuses the memory of the first
		if err := ParseOutput(&out, frames, HandleEvents, &limits); err != nil {
			t.Fatal(err)
		}
		wantEvents := []Event{
			{[]byte("added"), []byte("1"), [][]byte{[]byte("a"), []byte("b")}},
			{[]byte("reset"), []byte{}, [][]byte{[]byte("c")}},
		}
		if !reflect.DeepEqual(out.Events, wantEvents) {
			t.Errorf("events %q", out.Events)
		}
		if !reflect.DeepEqual(out.Sends, []Send{send, asking, named}) {
			t.Errorf("sends %+v", out.Sends)
		}
		if !reflect.DeepEqual(out.Timers, []Timer{timer, {Name: []byte("close"), Cancel: true}}) {
			t.Errorf("timers %+v", out.Timers)
		}
		if string(out.Reply) != "r" || !out.Passivate || !out.Delete || out.Rejected || out.HasState {
			t.Errorf("%+v", out)
		}
	}
	if err := ParseOutput(&out, nil, HandleEvents, &limits); err != nil || len(out.Events)+len(out.Sends)+len(out.Timers) != 0 || out.Passivate || out.Reply != nil {
		t.Errorf("not reset: %+v %v", out, err)
	}
}

func TestParseOutputModes(t *testing.T) {
	allowed := map[Mode]map[Kind]bool{
		HandleEvents: {OutEvent: true, OutReply: true, OutReject: true, OutSend: true, OutSetTimer: true, OutCancelTimer: true, OutPassivate: true, OutTag: true, OutDelete: true, OutSendWithAnswer: true, OutSetSchedule: true, OutSendWithToken: true, OutProgress: true},
		HandleState:  {OutReply: true, OutReject: true, OutSend: true, OutSetTimer: true, OutCancelTimer: true, OutPassivate: true, OutState: true, OutDelete: true, OutSendWithAnswer: true, OutSetSchedule: true, OutSendWithToken: true},
		QueryOnly:    {OutReply: true, OutReject: true},

		HandleTransient: {OutReply: true, OutReject: true, OutPassivate: true},
	}
	limits := DefaultLimits()
	for mode, kinds := range allowed {
		for _, v := range vectors() {
			if !strings.HasPrefix(v.name, "output") {
				continue
			}
			frames := v.bytes
			if Kind(v.bytes[0]) == OutTag && mode == HandleEvents {
				frames = append(AppendEvent(nil, "e", nil), frames...)
			}
			err := ParseOutput(new(Output), frames, mode, &limits)
			if kinds[Kind(v.bytes[0])] != (err == nil) {
				t.Errorf("mode %d, %s: %v", mode, v.name, err)
			}
		}
		for _, kind := range []Kind{0, 15, 16, 255} {
			if err := ParseOutput(new(Output), AppendFrame(nil, kind, ""), mode, &limits); !errors.Is(err, ErrMalformed) {
				t.Errorf("mode %d, kind %d: %v", mode, kind, err)
			}
		}
	}
}

// TestParseOutputLimits tests every limit with a value one below the limit, at
// the limit, and one above the limit.
func TestParseOutputLimits(t *testing.T) {
	limits := DefaultLimits()
	limits.OutputBytes = 4 << 20 // high enough that the test does not reach it
	filled := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
	repeat := func(frame []byte, n int) []byte { return bytes.Repeat(frame, n) }
	// parts splits total bytes of frame bodies into pieces below the limit for
	// one piece.
	parts := func(total, overhead int, one func(dst, payload []byte) []byte) []byte {
		var frames []byte
		for total > 0 {
			n := min(total, 60<<10)
			if total-n > 0 && total-n < overhead {
				n -= overhead
			}
			frames = one(frames, filled(n-overhead))
			total -= n
		}
		return frames
	}
	cases := []struct {
		name  string
		limit int
		mode  Mode
		make  func(n int) []byte
	}{
		{"event payload", limits.EventBytes, HandleEvents, func(n int) []byte { return AppendEvent(nil, "e", filled(n)) }},
		{"events", limits.CommandEvents, HandleEvents, func(n int) []byte { return repeat(AppendEvent(nil, "e", nil), n) }},
		{"event bytes", limits.CommandEventBytes, HandleEvents, func(n int) []byte {
			return parts(n, 3, func(dst, p []byte) []byte { return AppendEvent(dst, "e", p) })
		}},
		{"event bytes with tag", limits.CommandEventBytes, HandleEvents, func(n int) []byte {
			return AppendTag(parts(n-5, 3, func(dst, p []byte) []byte { return AppendEvent(dst, "e", p) }), filled(5))
		}},
		{"event type", limits.NameBytes, HandleEvents, func(n int) []byte { return AppendEvent(nil, filled(n), nil) }},
		{"tags", limits.EventTags, HandleEvents, func(n int) []byte {
			return append(AppendEvent(nil, "e", nil), repeat(AppendTag(nil, "t"), n)...)
		}},
		{"tags of the second event", limits.EventTags, HandleEvents, func(n int) []byte {
			first := AppendTag(AppendEvent(nil, "e", nil), "t")
			return append(AppendEvent(first, "e", nil), repeat(AppendTag(nil, "t"), n)...)
		}},
		{"tag", limits.NameBytes, HandleEvents, func(n int) []byte { return AppendTag(AppendEvent(nil, "e", nil), filled(n)) }},
		{"reply", limits.ReplyBytes, HandleEvents, func(n int) []byte { return AppendReply(nil, filled(n)) }},
		{"reply of a query", limits.ReplyBytes, QueryOnly, func(n int) []byte { return AppendReply(nil, filled(n)) }},
		{"state", limits.SnapshotBytes, HandleState, func(n int) []byte { return AppendState(nil, filled(n)) }},
		{"code", limits.NameBytes, HandleEvents, func(n int) []byte { return AppendReject(nil, filled(n), nil) }},
		{"sends", limits.CommandSends, HandleEvents, func(n int) []byte { return repeat(sendOf(nil), n) }},
		{"send payload", limits.EventBytes, HandleEvents, func(n int) []byte { return sendOf(filled(n)) }},
		{"send bytes", limits.CommandSendBytes, HandleEvents, func(n int) []byte {
			return parts(n, 9, func(dst, p []byte) []byte { return append(dst, sendOf(p)...) })
		}},
		{"send entity type", MaxEntityTypeBytes, HandleState, func(n int) []byte {
			return AppendSend(nil, Send{EntityType: filled(n), EntityID: []byte("i"), Command: []byte("c")})
		}},
		{"send entity id", MaxEntityIDBytes, HandleState, func(n int) []byte {
			return AppendSend(nil, Send{EntityType: []byte("t"), EntityID: filled(n), Command: []byte("c")})
		}},
		{"send token", MaxTokenBytes, HandleState, func(n int) []byte {
			return AppendSend(nil, Send{EntityType: []byte("t"), EntityID: []byte("i"), Command: []byte("c"), WantsAnswer: true, OnReply: []byte("r"), OnReject: []byte("r"), Token: filled(n)})
		}},
		{"timers", limits.CommandTimers, HandleEvents, func(n int) []byte {
			return append(repeat(AppendCancelTimer(nil, "t"), n-1), AppendSetTimer(nil, Timer{Name: []byte("t"), Command: []byte("c")})...)
		}},
		{"timer payload", limits.EventBytes, HandleEvents, func(n int) []byte {
			return AppendSetTimer(nil, Timer{Name: []byte("t"), Command: []byte("c"), Payload: filled(n)})
		}},
	}
	for _, c := range cases {
		for delta := -1; delta <= 1; delta++ {
			err := ParseOutput(new(Output), c.make(c.limit+delta), c.mode, &limits)
			if (delta > 0) != (err != nil) {
				t.Errorf("%s at limit%+d: %v", c.name, delta, err)
			}
		}
	}
	for delta := -1; delta <= 1; delta++ {
		frames := AppendReply(nil, filled(1000))
		limits.OutputBytes = len(frames) - delta
		if err := ParseOutput(new(Output), frames, QueryOnly, &limits); (delta > 0) != errors.Is(err, ErrOverLimit) {
			t.Errorf("output at limit%+d: %v", delta, err)
		}
	}
}

// TestMessagesOfRejectionsAreTruncated checks that a long message is truncated
// instead of rejected, because it is only displayed.
func TestMessagesOfRejectionsAreTruncated(t *testing.T) {
	limits := DefaultLimits()
	limits.MessageBytes = 4
	for text, want := range map[string]string{"": "", "abcd": "abcd", "abcde": "abcd", "abcé": "abc", "é€": "é", "a\xffb": "a?b", "\x80\x80\x80": "?"} {
		var out Output
		if err := ParseOutput(&out, AppendReject(nil, "c", text), QueryOnly, &limits); err != nil || !out.Rejected || string(out.Reject.Message) != want {
			t.Errorf("%q: %q, %v", text, out.Reject.Message, err)
		}
	}
}

func sendOf(payload []byte) []byte {
	return AppendSend(nil, Send{EntityType: []byte("t"), EntityID: []byte("i"), Command: []byte("c"), Payload: payload})
}

func TestParseOutputFaultsAsText(t *testing.T) {
	limits := DefaultLimits()
	good := AppendEvent(nil, "added", []byte("1"))
	with := func(frames []byte) []byte { return append(append([]byte(nil), good...), frames...) }
	cases := []struct {
		name   string
		mode   Mode
		frames []byte
	}{
		{"cut header", HandleEvents, with([]byte{2, 0})},
		{"cut body", HandleEvents, with([]byte{2, 9, 0, 0, 0, 'x'})},
		{"unknown kind", HandleEvents, with(AppendFrame(nil, 77, "x"))},
		{"kind zero", HandleEvents, with(AppendFrame(nil, 0, ""))},
		{"event in a query", QueryOnly, good},
		{"state from event-sourced", HandleEvents, with(AppendState(nil, nil))},
		{"second reply", HandleEvents, with(AppendReply(AppendReply(nil, nil), nil))},
		{"second reject", HandleEvents, with(AppendReject(AppendReject(nil, "c", ""), "c", ""))},
		{"second state", HandleState, AppendState(AppendState(nil, nil), nil)},
		{"tag first", HandleEvents, AppendTag(nil, "t")},
		{"empty tag", HandleEvents, with(AppendTag(nil, ""))},
		{"event body too short", HandleEvents, with(AppendFrame(nil, OutEvent, "\x09\x00x"))},
		{"event without type", HandleEvents, with(AppendEvent(nil, "", nil))},
		{"control character", HandleEvents, with(AppendEvent(nil, "a\nb", nil))},
		{"code not UTF-8", HandleEvents, with(AppendReject(nil, "a\xff", ""))},
		{"passivate with a body", HandleEvents, with(AppendFrame(nil, OutPassivate, "x"))},
		{"delete with a body", HandleEvents, with(AppendFrame(nil, OutDelete, "x"))},
		{"send to a bad type", HandleEvents, with(AppendSend(nil, Send{EntityType: []byte("Bad"), EntityID: []byte("i"), Command: []byte("c")}))},
		{"send without an id", HandleEvents, with(AppendSend(nil, Send{EntityType: []byte("t"), Command: []byte("c")}))},
		{"answer without a command", HandleEvents, with(AppendSend(nil, Send{EntityType: []byte("t"), EntityID: []byte("i"), Command: []byte("c"), WantsAnswer: true, OnReply: []byte("ok")}))},
		{"timer without a name", HandleEvents, with(AppendSetTimer(nil, Timer{Command: []byte("c")}))},
		{"send with an empty token", HandleEvents, with(AppendFrame(nil, OutSendWithToken, "\x01\x00t\x01\x00i\x01\x00c\x01\x00r\x01\x00r\x00\x00"))},
		{"send with a token cut off", HandleEvents, with(AppendFrame(nil, OutSendWithToken, "\x01\x00t\x01\x00i\x01\x00c\x01\x00r\x01\x00r\x02\x00x"))},
		{"schedule cut off", HandleEvents, with(AppendFrame(nil, OutSetSchedule, "\x01\x00t\x01\x00e\x00\x00"))},
		{"schedule without an expression", HandleEvents, with(AppendSetSchedule(nil, Timer{Name: []byte("t"), Command: []byte("c")}))},
		{"schedule with a policy that is none", HandleEvents, with(AppendSetSchedule(nil, Timer{Name: []byte("t"), Expression: []byte("@daily"), Missed: 3, Command: []byte("c")}))},
		{"timer cut off", HandleEvents, with(AppendFrame(nil, OutSetTimer, "\x01\x00t1234"))},
		{"progress without steps", HandleEvents, with(AppendFrame(nil, OutProgress, "\x01\x00"))},
		{"progress with a wait cut off", HandleEvents, with(AppendFrame(nil, OutProgress, "\x01\x00\x00\x00\x05\x00x"))},
		{"second progress", HandleEvents, with(AppendProgress(AppendProgress(nil, Progress{}), Progress{}))},
		{"progress of a durable state", HandleState, AppendProgress(nil, Progress{})},
		{"reply over its limit", HandleEvents, with(AppendReply(nil, make([]byte, limits.ReplyBytes+1)))},
	}
	var text strings.Builder
	for _, c := range cases {
		err := ParseOutput(new(Output), c.frames, c.mode, &limits)
		var frameError *FrameError
		if !errors.As(err, &frameError) {
			t.Fatalf("%s: %v, want a *FrameError", c.name, err)
		}
		text.WriteString(c.name + "\n  " + err.Error() + "\n")
	}
	golden(t, "testdata/faults.txt", text.String())
}

// TestProgressIsTruncated: the texts of a progress frame are for people, so
// they never fail a command. Texts that are too long are truncated, and texts
// beyond the maximum number are dropped.
func TestProgressIsTruncated(t *testing.T) {
	limits := DefaultLimits()
	long := strings.Repeat("ä", MaxWaitBytes)
	waits := [][]byte{[]byte("sleep"), []byte("bad \xff"), []byte(long), nil}
	for range MaxWaits {
		waits = append(waits, []byte("more"))
	}
	var out Output
	for range 2 {
		if err := ParseOutput(&out, AppendProgress(nil, Progress{Steps: 1 << 31, Waits: waits}), HandleEvents, &limits); err != nil {
			t.Fatal(err)
		}
		got := out.Progress
		want := [][]byte{[]byte("sleep"), []byte("bad ?"), []byte(long[:MaxWaitBytes]), {}, []byte("more"), []byte("more"), []byte("more"), []byte("more")}
		if got.Steps != 1<<31 || !reflect.DeepEqual(got.Waits, want) {
			t.Errorf("progress %d %q", got.Steps, got.Waits)
		}
	}
	if err := ParseOutput(&out, nil, HandleEvents, &limits); err != nil || out.Progress.Steps != 0 || len(out.Progress.Waits) != 0 {
		t.Errorf("not reset: %+v, %v", out.Progress, err)
	}
}

func TestParseOutputDoesNotAllocate(t *testing.T) {
	frames := benchmarkFrames()
	limits := DefaultLimits()
	var out Output
	if n := testing.AllocsPerRun(100, func() {
		if err := ParseOutput(&out, frames, HandleEvents, &limits); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
	var request Request
	input := benchmarkRequest(nil)
	if n := testing.AllocsPerRun(100, func() {
		input = benchmarkRequest(input[:0])
		if err := ParseRequest(&request, input); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}

func benchmarkFrames() []byte {
	frames := AppendTag(AppendEvent(nil, "added", []byte(`{"amount":1}`)), "large")
	frames = append(frames, sendOf([]byte("{}"))...)
	return AppendReply(frames, []byte(`{"total":42}`))
}

func benchmarkRequest(dst []byte) []byte {
	dst = AppendSequence(dst, 7)
	dst = AppendName(dst, "add")
	dst = AppendPayload(dst, []byte(`{"amount":1}`))
	dst = AppendCommandID(dst, "3f2a9c4e-0000-4000-8000-000000000000")
	dst = AppendNow(dst, 1_700_000_000_000_000_000)
	dst = AppendSeed(dst, 42)
	return AppendSource(dst, Source{Kind: SourceClient})
}

func BenchmarkParseOutput(b *testing.B) {
	frames, limits := benchmarkFrames(), DefaultLimits()
	var out Output
	b.ReportAllocs()
	for b.Loop() {
		if err := ParseOutput(&out, frames, HandleEvents, &limits); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendRequest(b *testing.B) {
	var input []byte
	b.ReportAllocs()
	for b.Loop() {
		input = benchmarkRequest(input[:0])
	}
}

// TestTimerBefore1970IsRejected checks that a time that became negative by
// overflow is rejected.
func TestTimerBefore1970IsRejected(t *testing.T) {
	limits := DefaultLimits()
	for due, want := range map[int64]bool{-1: false, math.MinInt64: false, 0: true, 1: true, math.MaxInt64: true} {
		var out Output
		err := ParseOutput(&out, AppendSetTimer(nil, Timer{Name: []byte("t"), Due: due, Command: []byte("c")}), HandleEvents, &limits)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "timer is due before 1970") {
			t.Errorf("due at %d: %v", due, err)
		}
	}
}
