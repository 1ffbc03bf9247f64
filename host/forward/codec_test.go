package forward

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/sharding"
)

var requests = []*entity.Request{
	{ExpectedSequence: entity.NoExpectation, Entity: sharding.EntityID{Type: "t", ID: "i"}},
	{
		Kind: entity.Command, Entity: sharding.EntityID{Type: "counter", ID: "é ☃"}, Name: "add", Payload: []byte(`{"amount":3}`),
		ID: "c-1", ServerID: true, ExpectedSequence: 0, Deadline: time.Unix(1005, 250_000), Route: entity.Route{Round: 1 << 40}, Shard: 300,
	},
	{Kind: entity.Query, Entity: sharding.EntityID{Type: "a", ID: "b"}, Name: "total", ExpectedSequence: entity.NoExpectation, Deadline: time.Unix(999, 0)},
	{Kind: entity.StaleQuery, Entity: sharding.EntityID{Type: "a", ID: "b"}, Name: "n", Payload: make([]byte, 300), ExpectedSequence: 1 << 50},
	{
		Kind: entity.Deliver, Entity: sharding.EntityID{Type: "a", ID: "b"}, Name: "deposit", Payload: []byte("{}"), ID: "send-1", ServerID: true, ExpectedSequence: entity.NoExpectation,
		Delivery: &entity.Delivery{Source: sharding.EntityID{Type: "transfer", ID: "t1"}, Number: 1 << 40, After: 1<<40 - 3, OnReply: "deposited", OnReject: "refused"},
	},
	{
		Kind: entity.Deliver, Entity: sharding.EntityID{Type: "a", ID: "b"}, Name: "deposit", ExpectedSequence: entity.NoExpectation,
		Delivery: &entity.Delivery{Source: sharding.EntityID{Type: "transfer", ID: "t1"}, Number: 1, Refuse: &entity.RejectedError{Code: "not_found", Message: "there is no such type"}},
	},
	{
		Kind: entity.Command, Entity: sharding.EntityID{Type: "counter", ID: "c"}, Name: "add", ID: "c-2", ExpectedSequence: entity.NoExpectation,
		First: time.Unix(998, 0), Again: true,
	},
}

// TestRequestsAreTheGeneratedTypes holds the hand-written codec against the
// generated one, both ways.
func TestRequestsAreTheGeneratedTypes(t *testing.T) {
	now := time.Unix(1000, 0)
	for i, q := range requests {
		encoded := appendRequest(nil, uint64(i)<<32|7, q, now)
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
		var a asked
		var back entity.Request
		var n names
		if err := items(encoded, a.parse); err != nil {
			t.Fatal(err)
		}
		if _, err := a.fill(&back, &n, nil, now); err != nil {
			t.Fatal(err)
		}
		want := *q
		want.Route = entity.Route{}
		if want.Shard = 0; a.shard != uint64(q.Shard) {
			t.Errorf("%d: shard %d, want %d", i, a.shard, q.Shard)
		}
		if !q.Deadline.IsZero() && q.Deadline.Before(now) {
			want.Deadline = now.Add(time.Microsecond) // is past when it is looked at
		}
		if !want.Deadline.Equal(back.Deadline) {
			t.Errorf("%d: deadline %v, want %v", i, back.Deadline, want.Deadline)
		}
		want.Deadline, back.Deadline = time.Time{}, time.Time{}
		if q.Kind == entity.Command && !q.Again {
			want.First = now // it has come here for the first time
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
		if fmt.Sprint(back) != fmt.Sprint(want) {
			t.Errorf("%d: got %+v, want %+v", i, back, want)
		}
	}
}

func TestResultsAreTheGeneratedTypes(t *testing.T) {
	for i, r := range []entity.Result{
		{},
		{Payload: []byte("reply"), Sequence: 9, EventCount: 2, Duplicate: true},
		{Payload: []byte("reply"), Sequence: 1, EventCount: 1, Fuel: 123_456_789_012},
		{Err: &entity.RejectedError{Code: "no", Message: "never"}},
		{Err: &entity.SequenceMismatchError{Expected: 4, Actual: 5}},
		{Err: &sharding.NotLeaderError{Shard: 3, Term: 9, Leader: "n2"}},
		{Err: fmt.Errorf("append: %w", entity.ErrNotApplied)},
		{Err: &entity.GapError{Wanted: 7}},
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
		var a answered
		if err := items(encoded, a.parse); err != nil {
			t.Fatal(err)
		}
		back, err := a.result()
		if err != nil || fmt.Sprintf("%+v", back) != fmt.Sprintf("%+v", r) {
			t.Errorf("%d: got %+v, want %+v, %v", i, back, r, err)
		}
	}
}

// TestEverySentinelTravels: each error that the server knows a code for is
// itself at the other end, with its text, and wrapped too.
func TestEverySentinelTravels(t *testing.T) {
	named := map[string]bool{}
	numbers := map[uint64]bool{}
	for _, s := range sentinels {
		if numbers[s.kind] || s.kind < 16 {
			t.Errorf("number %d is used twice or reserved", s.kind)
		}
		numbers[s.kind] = true
		for _, err := range []error{s.err, fmt.Errorf("layer: %w", s.err), errors.Join(s.err, errors.New("more"))} {
			back, malformed := parseError(appendError(nil, err))
			if malformed != nil || !errors.Is(back, s.err) || back.Error() != err.Error() {
				t.Errorf("%v arrives as %v, %v", err, back, malformed)
			}
			for _, other := range sentinels {
				if errors.Is(back, other.err) != errors.Is(err, other.err) {
					t.Errorf("%v arrives as %v too", err, other.err)
				}
			}
		}
	}
	list, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sentinelsIn(list, "sentinels") {
		named[name] = true
	}
	codes, err := parser.ParseFile(token.NewFileSet(), "../rpc/codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := sentinelsIn(codes, "sentinelCodes")
	if len(known) < 20 {
		t.Fatalf("found only %v", known)
	}
	for _, name := range known {
		// The server's own are said by the node that talks to the caller.
		if strings.Contains(name, ".") && !named[name] {
			t.Errorf("%s has a code and does not travel", name)
		}
	}
}

// sentinelsIn lists the errors in the first or the second place of the table's
// entries.
func sentinelsIn(f *ast.File, table string) (out []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != table {
			return true
		}
		for _, entry := range spec.Values[0].(*ast.CompositeLit).Elts {
			for _, e := range entry.(*ast.CompositeLit).Elts {
				switch x := e.(type) {
				case *ast.SelectorExpr:
					if pkg := x.X.(*ast.Ident).Name; pkg != "connect" {
						out = append(out, pkg+"."+x.Sel.Name)
					}
				case *ast.Ident:
					out = append(out, x.Name)
				}
			}
		}
		return false
	})
	return out
}

// TestTypedErrorsTravel: errors with data arrive with it, under their codes.
func TestTypedErrorsTravel(t *testing.T) {
	for _, err := range []error{
		&entity.RejectedError{Code: "insufficient_funds", Message: "the balance is too low"},
		&entity.RejectedError{},
		&entity.SequenceMismatchError{Expected: 1, Actual: 2},
		&entity.GuestFaultError{Message: "unreachable"},
		&rpc.InvalidModuleError{Reason: "bad"},
		&entity.RateLimitedError{RetryAfter: 12_345_678},
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

// FuzzDecode: what another node sends never does harm, and decodes as the
// generated code decodes it.
func FuzzDecode(f *testing.F) {
	for _, q := range requests {
		f.Add(appendRequest(nil, 3, q, time.Unix(1000, 0)))
	}
	f.Add(appendResult(nil, 4, &entity.Result{Err: entity.ErrBusy}, appendError(nil, entity.ErrBusy)))
	f.Fuzz(func(t *testing.T, msg []byte) {
		var a asked
		var n names
		count := 0
		err := items(msg, func(item []byte) error {
			count++
			if err := a.parse(item); err != nil {
				return err
			}
			var q entity.Request
			_, err := a.fill(&q, &n, nil, time.Unix(1000, 0))
			if err == nil && q.Entity.Validate() != nil {
				t.Error("an invalid entity was let in")
			}
			return err
		})
		var m peerv1.ForwardRequest
		if generated := proto.Unmarshal(msg, &m); err == nil && generated == nil && count != len(m.GetItems()) {
			t.Errorf("%d items, generated %d", count, len(m.GetItems()))
		}
		var r answered
		items(msg, func(item []byte) error {
			if err := r.parse(item); err != nil {
				return err
			}
			_, err := r.result()
			return err
		})
	})
}
