package forward

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

var requests = []*request.Request{
	{ExpectedSequence: request.NoExpectation, Entity: sharding.EntityID{Type: "t", ID: "i"}},
	{
		Kind: request.Command, Entity: sharding.EntityID{Type: "counter", ID: "é ☃"}, Name: "add", Payload: []byte(`{"amount":3}`),
		ID: "c-1", ServerID: true, ExpectedSequence: 0, Deadline: time.Unix(1005, 250_000), Route: request.Route{Round: 1 << 40}, Shard: 300,
	},
	{Kind: request.Query, Entity: sharding.EntityID{Type: "a", ID: "b"}, Name: "total", ExpectedSequence: request.NoExpectation, Deadline: time.Unix(999, 0)},
	{Kind: request.StaleQuery, Entity: sharding.EntityID{Type: "a", ID: "b"}, Name: "n", Payload: make([]byte, 300), ExpectedSequence: 1 << 50},
	{
		Kind: request.Deliver, Entity: sharding.EntityID{Type: "a", ID: "b"}, Name: "deposit", Payload: []byte("{}"), ID: "send-1", ServerID: true, ExpectedSequence: request.NoExpectation,
		Delivery: &request.Delivery{Source: sharding.EntityID{Type: "transfer", ID: "t1"}, Number: 1 << 40, After: 1<<40 - 3, OnReply: "deposited", OnReject: "refused"},
	},
	{
		Kind: request.Deliver, Entity: sharding.EntityID{Type: "a", ID: "b"}, Name: "deposit", ExpectedSequence: request.NoExpectation,
		Delivery: &request.Delivery{Source: sharding.EntityID{Type: "transfer", ID: "t1"}, Number: 1, Refuse: &request.RejectedError{Code: "not_found", Message: "there is no such type"}},
	},
	{
		Kind: request.Deliver, Entity: sharding.EntityID{Type: "a", ID: "b"}, Name: "deposit", ExpectedSequence: request.NoExpectation,
		Delivery: &request.Delivery{Source: sharding.EntityID{Type: "transfer", ID: "t1"}, Number: 1, SentAt: 1_700_000_000_000_000_001, Hops: 63, Answer: true, Token: "\x00token"},
	},
	{
		Kind: request.Command, Entity: sharding.EntityID{Type: "counter", ID: "c"}, Name: "add", ID: "c-2", ExpectedSequence: request.NoExpectation,
		First: time.Unix(998, 0), Again: true,
	},
	{
		Kind: request.Command, Entity: sharding.EntityID{Type: "counter", ID: "c"}, Name: "add", ID: "c-3", ExpectedSequence: request.NoExpectation,
		Principal: caller(principal.JWT, "bo", "staff", "auditors"), Roles: 300,
	},
	{
		Kind: request.Query, Entity: sharding.EntityID{Type: "counter", ID: "c"}, Name: "total", ExpectedSequence: request.NoExpectation,
		Principal: principal.OfNobody(),
	},
	{
		Kind: request.Command, Entity: sharding.EntityID{Type: "counter", ID: "c"}, Name: "add", ID: "c-4", ExpectedSequence: request.NoExpectation,
		Trace: &request.Trace{TraceContext: journal.TraceContext{Trace: [16]byte{1, 2, 15: 16}, Span: [8]byte{17, 18, 7: 24}, Flags: 1}},
	},
}

func caller(kind principal.Kind, name string, groups ...string) *principal.Principal {
	p, err := principal.New(kind, name, groups)
	if err != nil {
		panic(err)
	}
	return p
}

// The hand-written codec agrees with the generated codec in both directions.
func TestRequestCodecMatchesGeneratedTypes(t *testing.T) {
	now := time.Unix(1000, 0)
	for i, q := range requests {
		encoded := appendRequest(nil, uint64(i)<<32|7, q, now, says{true, true})
		if len(encoded) > requestSize(q) {
			t.Errorf("%d: %d bytes, at most %d are accounted", i, len(encoded), requestSize(q))
		}
		var m peerv1.ForwardRequest
		if err := proto.Unmarshal(encoded, &m); err != nil || len(m.GetItems()) != 1 {
			t.Fatalf("%d: %v, %v", i, &m, err)
		}
		generated, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
		if err != nil || string(generated) != string(encoded) {
			t.Errorf("%d: encoded\n%x, generated\n%x, %v", i, encoded, generated, err)
		}
		it := m.GetItems()[0]
		if it.GetEntityId() != q.Entity.ID || it.GetCommandId() != string(q.ID) || it.GetRound() != q.Route.Round || it.GetShard() != uint32(q.Shard) || string(it.GetPayload()) != string(q.Payload) {
			t.Errorf("%d: %v", i, it)
		}
		var a wireRequest
		var back request.Request
		var n names
		var c callers
		if err := items(encoded, a.parse); err != nil {
			t.Fatal(err)
		}
		if _, err := a.fill(&back, &n, &c, nil, now); err != nil {
			t.Fatal(err)
		}
		want := *q
		want.Route = request.Route{}
		if want.Shard = 0; a.shard != uint64(q.Shard) {
			t.Errorf("%d: shard %d, want %d", i, a.shard, q.Shard)
		}
		if !q.Deadline.IsZero() && q.Deadline.Before(now) {
			want.Deadline = now.Add(time.Microsecond) // has passed when it is checked
		}
		if !want.Deadline.Equal(back.Deadline) {
			t.Errorf("%d: deadline %v, want %v", i, back.Deadline, want.Deadline)
		}
		want.Deadline, back.Deadline = time.Time{}, time.Time{}
		if q.Kind == request.Command && !q.Again {
			want.First = now // this was the first attempt
		}
		if !want.First.Equal(back.First) {
			t.Errorf("%d: first tried at %v, want %v", i, back.First, want.First)
		}
		want.First, back.First = time.Time{}, time.Time{}
		if want.Delivery != nil {
			if !reflect.DeepEqual(want.Delivery, back.Delivery) {
				t.Errorf("%d: got %+v, want %+v", i, back.Delivery, want.Delivery)
			}
			want.Delivery, back.Delivery = nil, nil
		}
		if !reflect.DeepEqual(want.Principal, back.Principal) {
			t.Errorf("%d: it is of %+v, want %+v", i, back.Principal, want.Principal)
		}
		want.Principal, back.Principal = nil, nil
		if !reflect.DeepEqual(want.Trace, back.Trace) {
			t.Errorf("%d: it is in the span %+v, want %+v", i, back.Trace, want.Trace)
		}
		want.Trace, back.Trace = nil, nil
		if fmt.Sprint(back) != fmt.Sprint(want) {
			t.Errorf("%d: got %+v, want %+v", i, back, want)
		}
	}
}

func TestResultCodecMatchesGeneratedTypes(t *testing.T) {
	for i, r := range []request.Result{
		{},
		{Payload: []byte("reply"), Sequence: 9, EventCount: 2, Duplicate: true},
		{Payload: []byte("reply"), Sequence: 1, EventCount: 1, Fuel: 123_456_789_012},
		{Err: &request.RejectedError{Code: "no", Message: "never"}},
		{Err: &request.SequenceMismatchError{Expected: 4, Actual: 5}},
		{Err: &sharding.NotLeaderError{Shard: 3, Term: 9, Leader: "n2"}},
		{Err: fmt.Errorf("append: %w", request.ErrNotApplied)},
		{Err: &request.GapError{Wanted: 7}},
		{Err: &request.DeniedError{Verb: "invoke", EntityType: "counter", Message: "no"}},
	} {
		var failure []byte
		if r.Err != nil {
			failure = appendError(nil, r.Err)
		}
		encoded := appendResult(nil, uint64(i), &r, failure)
		var m peerv1.ForwardResponse
		if err := proto.Unmarshal(encoded, &m); err != nil || len(m.GetItems()) != 1 {
			t.Fatalf("%d: %v, %v", i, &m, err)
		}
		generated, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
		if err != nil || string(generated) != string(encoded) {
			t.Errorf("%d: encoded\n%x, generated\n%x, %v", i, encoded, generated, err)
		}
		var a wireResult
		if err := items(encoded, a.parse); err != nil {
			t.Fatal(err)
		}
		back, err := a.result()
		if err != nil || fmt.Sprintf("%+v", back) != fmt.Sprintf("%+v", r) {
			t.Errorf("%d: got %+v, want %+v, %v", i, back, r, err)
		}
	}
}

// Each sentinel in the table of outcomes arrives as itself, with its text, also
// if it is wrapped.
func TestEverySentinelArrivesAsItself(t *testing.T) {
	for _, o := range request.Outcomes {
		if o.Err == nil {
			continue
		}
		for _, err := range []error{o.Err, fmt.Errorf("layer: %w", o.Err), errors.Join(o.Err, errors.New("more"))} {
			back, malformed := parseError(appendError(nil, err))
			if malformed != nil || !errors.Is(back, o.Err) || back.Error() != err.Error() {
				t.Errorf("%v arrives as %v, %v", err, back, malformed)
			}
			for _, other := range request.Outcomes {
				if other.Err != nil && errors.Is(back, other.Err) != errors.Is(err, other.Err) {
					t.Errorf("%v arrives as %v too", err, other.Err)
				}
			}
		}
	}
}

// The table of errors in FORMAT.md contains exactly the numbers of the
// outcomes.
func TestFormatListsEveryKind(t *testing.T) {
	page, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Errors")
	listed := []uint64{}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			for number := range strings.SplitSeq(cells[1], ",") {
				if n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64); err == nil {
					listed = append(listed, n)
				}
			}
		}
	}
	want := []uint64{kindOpaque}
	for _, o := range request.Outcomes {
		want = append(want, o.Wire)
	}
	slices.Sort(listed)
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("FORMAT.md lists %d, the outcomes are %d", listed, want)
	}
}

// Errors with data arrive with their data.
func TestTypedErrorsArriveWithData(t *testing.T) {
	for _, err := range []error{
		&request.RejectedError{Code: "insufficient_funds", Message: "the balance is too low"},
		&request.RejectedError{},
		&request.SequenceMismatchError{Expected: 1, Actual: 2},
		&request.GuestFaultError{Message: "unreachable"},
		&request.InvalidModuleError{Reason: "bad"},
		&request.InvalidPayloadError{Violations: []request.Violation{{Field: "items[3].sku", Text: "is missing"}, {Text: "is null"}}},
		&request.RateLimitedError{RetryAfter: 12_345_678},
		&request.RateLimitedError{RetryAfter: 12_345_678, Limit: request.LimitFuel},
		&request.GapError{Wanted: 7},
		&sharding.NotLeaderError{Shard: 300, Term: 7, Leader: "n1"},
		&sharding.NotLeaderError{Shard: 1},
		errors.New("read /x: input/output error"),
	} {
		back, malformed := parseError(appendError(nil, fmt.Errorf("wrapped: %w", err)))
		if malformed != nil || !strings.HasSuffix(back.Error(), err.Error()) {
			t.Errorf("%v arrives as %v, %v", err, back, malformed)
		}
		if got, want := fmt.Sprintf("%T", back), fmt.Sprintf("%T", err); got != want && want != "*errors.errorString" {
			t.Errorf("%s arrives as %s", want, got)
		}
	}
}

// FuzzDecode checks that input from another node does no harm, and is decoded
// as the generated code decodes it.
func FuzzDecode(f *testing.F) {
	for _, q := range requests {
		f.Add(appendRequest(nil, 3, q, time.Unix(1000, 0), says{true, true}))
	}
	f.Add(appendResult(nil, 4, &request.Result{Err: request.ErrBusy}, appendError(nil, request.ErrBusy)))
	f.Fuzz(func(t *testing.T, msg []byte) {
		var a wireRequest
		var n names
		var c callers
		count := 0
		err := items(msg, func(item []byte) error {
			count++
			if err := a.parse(item); err != nil {
				return err
			}
			var q request.Request
			_, err := a.fill(&q, &n, &c, nil, time.Unix(1000, 0))
			if err == nil && q.Entity.Validate() != nil {
				t.Error("an invalid entity was let in")
			}
			return err
		})
		var m peerv1.ForwardRequest
		if generated := proto.Unmarshal(msg, &m); err == nil && generated == nil && count != len(m.GetItems()) {
			t.Errorf("%d items, generated %d", count, len(m.GetItems()))
		}
		var r wireResult
		items(msg, func(item []byte) error {
			if err := r.parse(item); err != nil {
				return err
			}
			_, err := r.result()
			return err
		})
	})
}

// A node receives no trace contexts before the cluster version supports them,
// and a malformed one ends the stream.
func TestTraceContextsNeedClusterVersion(t *testing.T) {
	q := requests[len(requests)-1]
	var a wireRequest
	if err := items(appendRequest(nil, 1, q, time.Unix(1000, 0), says{principals: true}), a.parse); err != nil || a.trace != nil {
		t.Errorf("the trace %x is said, %v", a.trace, err)
	}
	if err := items(appendRequest(nil, 1, q, time.Unix(1000, 0), says{traces: true}), a.parse); err != nil || len(a.trace) != journal.TraceContextBytes {
		t.Fatalf("the trace %x is said, %v", a.trace, err)
	}
	for _, bad := range [][]byte{a.trace[:24], make([]byte, journal.TraceContextBytes)} {
		a.trace = bad
		var back request.Request
		if _, err := a.fill(&back, new(names), new(callers), nil, time.Unix(1000, 0)); !errors.Is(err, errMalformed) {
			t.Errorf("%x is taken: %v", bad, err)
		}
	}
}

// TestLongNamesOfMessagesAreMalformed: a message whose token, or whose
// outcome's commands, have more than 255 bytes is malformed, because a
// record stores each of these lengths in one byte.
func TestLongNamesOfMessagesAreMalformed(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, d := range map[string]request.Delivery{
		"token": {Token: long}, "reply": {OnReply: long}, "reject": {OnReject: long},
	} {
		d.Source = sharding.EntityID{Type: "account", ID: "a"}
		if _, err := parseSend(appendSend(nil, &d), new(names)); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
