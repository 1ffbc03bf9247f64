package wire_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/wire"
)

// TestRequestEqualsGenerated compares encoder and decoder with the generated
// types, in both directions, for random commands.
func TestRequestEqualsGenerated(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		want := &entityv1.SendCommandStreamRequest{}
		var encoded []byte
		for range rng.IntN(4) {
			o, item := randomCommand(rng)
			if got := len(wire.AppendCommand(nil, item.CorrelationId, &o)); got > o.Size() {
				t.Fatalf("%d bytes, announced %d", got, o.Size())
			}
			encoded = wire.AppendCommand(encoded, item.CorrelationId, &o)
			want.Requests = append(want.Requests, item)
		}
		var got entityv1.SendCommandStreamRequest
		if err := proto.Unmarshal(encoded, &got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(&got, want) {
			t.Fatalf("generated code reads\n%v\nwanted\n%v", &got, want)
		}
		checkParsedRequest(t, encoded, want)
	}
}

func randomCommand(rng *rand.Rand) (wire.Outgoing, *entityv1.SendCommandStreamRequest_Item) {
	o := wire.Outgoing{
		EntityType: text(rng), EntityID: text(rng), Name: text(rng), Data: []byte(text(rng)), CommandID: text(rng),
	}
	request := &entityv1.SendCommandRequest{
		EntityType: o.EntityType, EntityId: o.EntityID, Command: o.Name, CommandId: o.CommandID,
		Payload: &entityv1.SendCommandRequest_Data{Data: o.Data},
	}
	if rng.IntN(2) == 0 {
		o.HasExpected, o.Expected = true, number(rng)
		request.ExpectedSequence = &o.Expected
	}
	if rng.IntN(2) == 0 {
		o.FirstAge = time.Duration(number(rng))
		if o.FirstAge != 0 {
			request.FirstAttemptAge = durationpb.New(o.FirstAge)
		}
	}
	return o, &entityv1.SendCommandStreamRequest_Item{CorrelationId: number(rng), Request: request}
}

// checkParsedRequest checks that ParseRequest decodes the same as the generated
// type.
func checkParsedRequest(t *testing.T, encoded []byte, want *entityv1.SendCommandStreamRequest) {
	t.Helper()
	i := 0
	err := wire.ParseRequest(encoded, func(c *wire.Command) error {
		if i >= len(want.Requests) {
			t.Fatalf("more than %d commands", len(want.Requests))
		}
		item := want.Requests[i]
		i++
		r := item.GetRequest()
		if c.Correlation != item.GetCorrelationId() || string(c.EntityType) != r.GetEntityType() || string(c.EntityID) != r.GetEntityId() ||
			string(c.Name) != r.GetCommand() || string(c.CommandID) != r.GetCommandId() ||
			c.HasExpected != (r != nil && r.ExpectedSequence != nil) || c.Expected != r.GetExpectedSequence() ||
			c.FirstAge != r.GetFirstAttemptAge().AsDuration() {
			t.Fatalf("parsed %+v, wanted %v", c, item)
		}
		switch p := r.GetPayload().(type) {
		case nil:
			if c.Kind != wire.NoPayload {
				t.Fatalf("kind %d, wanted none", c.Kind)
			}
		case *entityv1.SendCommandRequest_Data:
			if c.Kind != wire.DataPayload || string(c.Payload) != string(p.Data) {
				t.Fatalf("payload %d %q, wanted data %q", c.Kind, c.Payload, p.Data)
			}
		case *entityv1.SendCommandRequest_Json:
			if c.Kind != wire.JSONPayload {
				t.Fatalf("kind %d, wanted json", c.Kind)
			}
		}
		return nil
	})
	if err != nil || i != len(want.Requests) {
		t.Fatalf("parsed %d of %d commands: %v", i, len(want.Requests), err)
	}
}

// TestFormerAgeIsParsed: a client of the previous release sends the age of the first
// attempt as a number of milliseconds, in the field 8.
func TestFormerAgeIsParsed(t *testing.T) {
	for ms, want := range map[uint64]time.Duration{61_000: 61 * time.Second, math.MaxUint64: math.MaxInt64 / time.Millisecond * time.Millisecond} {
		request := protowire.AppendVarint(protowire.AppendTag(nil, 8, protowire.VarintType), ms)
		item := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), request)
		var got time.Duration
		err := wire.ParseRequest(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), item), func(c *wire.Command) error {
			got = c.FirstAge
			return nil
		})
		if err != nil || got != want {
			t.Errorf("%d ms are parsed as %v, %v", ms, got, err)
		}
	}
}

// TestResponseEqualsGenerated is TestRequestEqualsGenerated for answers.
func TestResponseEqualsGenerated(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		want := &entityv1.SendCommandStreamResponse{}
		var answers []wire.Answer
		var encoded []byte
		for range rng.IntN(4) {
			a, item := randomAnswer(t, rng)
			if got := len(wire.AppendAnswer(nil, &a)); got > a.Size() {
				t.Fatalf("%d bytes, announced %d", got, a.Size())
			}
			encoded = wire.AppendAnswer(encoded, &a)
			answers = append(answers, a)
			want.Responses = append(want.Responses, item)
		}
		var got entityv1.SendCommandStreamResponse
		if err := proto.Unmarshal(encoded, &got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(&got, want) {
			t.Fatalf("generated code reads\n%v\nwanted\n%v", &got, want)
		}
		generated, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		err = wire.ParseResponse(generated, func(a *wire.Answer) error {
			if w := answers[i]; a.Correlation != w.Correlation || a.Kind != w.Kind || string(a.Payload) != string(w.Payload) ||
				a.Sequence != w.Sequence || a.EventCount != w.EventCount || a.Duplicate != w.Duplicate || string(a.NodeID) != string(w.NodeID) || a.Fuel != w.Fuel ||
				string(a.Code) != string(w.Code) || string(a.Message) != string(w.Message) || len(a.Details) != len(w.Details) {
				t.Fatalf("parsed %+v, wanted %+v", a, w)
			}
			i++
			return nil
		})
		if err != nil || i != len(answers) {
			t.Fatalf("parsed %d of %d answers: %v", i, len(answers), err)
		}
	}
}

func randomAnswer(t *testing.T, rng *rand.Rand) (wire.Answer, *entityv1.SendCommandStreamResponse_Item) {
	t.Helper()
	a := wire.Answer{Correlation: number(rng)}
	item := &entityv1.SendCommandStreamResponse_Item{CorrelationId: a.Correlation}
	if rng.IntN(3) == 0 {
		a.Code, a.Message = []byte("failed_precondition"), []byte(text(rng))
		e := &entityv1.Error{Code: string(a.Code), Message: string(a.Message)}
		packed, err := anypb.New(&entityv1.SequenceMismatch{Actual: number(rng)})
		if err != nil {
			t.Fatal(err)
		}
		e.Details = append(e.Details, packed)
		detail, err := proto.Marshal(packed)
		if err != nil {
			t.Fatal(err)
		}
		a.Details = append(a.Details, detail)
		item.Outcome = &entityv1.SendCommandStreamResponse_Item_Error{Error: e}
		return a, item
	}
	a.Sequence, a.EventCount, a.Duplicate, a.NodeID, a.Fuel = number(rng), uint64(rng.Uint32()), rng.IntN(2) == 0, []byte(text(rng)), number(rng)
	r := &entityv1.SendCommandResponse{
		Sequence: a.Sequence, EventCount: uint32(a.EventCount), Duplicate: a.Duplicate, NodeId: string(a.NodeID), Fuel: a.Fuel,
	}
	switch rng.IntN(3) {
	case 0:
		a.Kind, a.Payload = wire.DataPayload, []byte(text(rng))
		r.Payload = &entityv1.SendCommandResponse_Data{Data: a.Payload}
	case 1:
		v := structpb.NewStringValue(text(rng))
		encoded, err := proto.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		a.Kind, a.Payload = wire.JSONPayload, encoded
		r.Payload = &entityv1.SendCommandResponse_Json{Json: v}
	}
	item.Outcome = &entityv1.SendCommandStreamResponse_Item_Response{Response: r}
	return a, item
}

func text(rng *rand.Rand) string {
	return strings.Repeat("aé", rng.IntN(200)*rng.IntN(2))
}

func number(rng *rand.Rand) uint64 {
	return [...]uint64{0, 1, 127, 128, math.MaxUint32, math.MaxUint64, rng.Uint64()}[rng.IntN(7)]
}

func TestMalformed(t *testing.T) {
	o := wire.Outgoing{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte("{}"), CommandID: "c"}
	whole := wire.AppendCommand(nil, 1, &o)
	for name, msg := range map[string][]byte{
		"cut":           whole[:len(whole)-1],
		"field zero":    {0x02, 0x00},
		"endless":       {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"group":         {0x0c},
		"length beyond": {0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f},
	} {
		nothing := func(*wire.Command) error { return nil }
		if err := wire.ParseRequest(msg, nothing); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: error %v", name, err)
		}
		if err := wire.ParseResponse(msg, func(*wire.Answer) error { return nil }); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s as a response: error %v", name, err)
		}
	}
	stop := errors.New("stop")
	if err := wire.ParseRequest(whole, func(*wire.Command) error { return stop }); err != stop {
		t.Errorf("error of the callback became %v", err)
	}
}

// FuzzParseRequest checks that the decoder agrees with the generated code on
// everything that the generated code decodes, and never panics.
func FuzzParseRequest(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		_, item := randomCommand(rng)
		seed, err := proto.Marshal(&entityv1.SendCommandStreamRequest{Requests: []*entityv1.SendCommandStreamRequest_Item{item}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		var want entityv1.SendCommandStreamRequest
		if proto.Unmarshal(msg, &want) != nil {
			wire.ParseRequest(msg, func(*wire.Command) error { return nil })
			return
		}
		checkParsedRequest(t, msg, &want)
	})
}

func BenchmarkParseRequest(b *testing.B) {
	o := wire.Outgoing{
		EntityType: "counter", EntityID: "entity-1234", Name: "add", Data: []byte(`{"amount":3}`),
		CommandID: strings.Repeat("0", 32),
	}
	var msg []byte
	for i := range uint64(64) {
		msg = wire.AppendCommand(msg, i, &o)
	}
	b.Run("wire", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := wire.ParseRequest(msg, func(*wire.Command) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m entityv1.SendCommandStreamRequest
			if err := proto.Unmarshal(msg, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}
