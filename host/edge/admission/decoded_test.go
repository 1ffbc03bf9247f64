package admission

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// field encodes a field of bytes.
func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// live returns the memory that decode's result keeps in use. The result of a
// first call is not measured, because the library builds its tables for a
// message type when it decodes the first message of the type. Of several
// measurements the smallest one counts, because the process may allocate a few KB
// elsewhere during one of them.
func live(t *testing.T, decode func() any) int64 {
	t.Helper()
	decode()
	least := int64(math.MaxInt64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		result := decode()
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(result)
		least = min(least, int64(after.HeapAlloc)-int64(before.HeapAlloc))
	}
	return least
}

// TestDecodedBoundCoversTheMemory decodes the messages that take the most
// memory for their length, and compares this memory with the bound. The
// bound must not be far above the memory either, because honest commands are
// charged as much as the bound.
func TestDecodedBoundCoversTheMemory(t *testing.T) {
	const size = 256 << 10
	list := func(element []byte) []byte {
		return bytes.Repeat(field(1, element), size/len(field(1, element)))
	}
	jsonField := (&entityv1.SendCommandRequest{}).ProtoReflect().Descriptor().Fields().ByName("json").Number()
	payload := func(element []byte) []byte { return field(jsonField, field(6, list(element))) }
	object := field(5, field(1, append(field(1, []byte("a")), field(2, nil)...)))
	for name, tt := range map[string]struct {
		message proto.Message
		binary  []byte
		text    string
		most    int64 // the maximum ratio of the bound to the memory
	}{
		"empty values":    {&entityv1.SendCommandRequest{}, payload(nil), "", 2},
		"lists":           {&entityv1.SendCommandRequest{}, payload(field(6, nil)), "", 3},
		"numbers":         {&entityv1.SendCommandRequest{}, payload(protowire.AppendFixed64(protowire.AppendTag(nil, 2, protowire.Fixed64Type), 7)), "", 3},
		"strings":         {&entityv1.SendCommandRequest{}, payload(field(3, []byte("abcdefgh"))), "", 3},
		"objects":         {&entityv1.SendCommandRequest{}, payload(object), "", 3},
		"one long string": {&entityv1.SendCommandRequest{}, field(jsonField, field(3, bytes.Repeat([]byte("a"), size))), "", 3},
		"data":            {&entityv1.SendCommandRequest{}, field((&entityv1.SendCommandRequest{}).ProtoReflect().Descriptor().Fields().ByName("data").Number(), make([]byte, size)), "", 2},
		"rules":           {&clusterv1.PutRoleRequest{}, bytes.Repeat(field(2, bytes.Repeat(field(2, nil), 4000)), 30), "", 5},
		"unknown fields":  {&entityv1.SendCommandRequest{}, bytes.Repeat(field(900, nil), size/4), "", 4},

		"JSON lists":   {&entityv1.SendCommandRequest{}, nil, `{"json":[` + strings.Repeat("[],", size/3) + `[]]}`, 4},
		"JSON objects": {&entityv1.SendCommandRequest{}, nil, `{"json":[` + strings.Repeat(`{"":1},`, size/7) + `[]]}`, 4},
		"JSON empty":   {&entityv1.SendCommandRequest{}, nil, `{"json":[` + strings.Repeat(`{},`, size/3) + `[]]}`, 4},
		"JSON numbers": {&entityv1.SendCommandRequest{}, nil, `{"json":[` + strings.Repeat(`1,`, size/2) + `1]}`, 4},
		"JSON text":    {&entityv1.SendCommandRequest{}, nil, `{"json":"` + strings.Repeat(`a,{[:`, size/5) + `"}`, 4},
		"JSON data":    {&entityv1.SendCommandRequest{}, nil, `{"data":"` + strings.Repeat(`AAAA`, size/4) + `"}`, 6},
		"JSON rules":   {&clusterv1.PutRoleRequest{}, nil, `{"rules":[` + strings.Repeat(`{},`, 60) + `{}]}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var all shapes
			s := all.of(tt.message.ProtoReflect().Descriptor())
			var bound int64
			var err error
			if tt.text != "" {
				bound = s.text([]byte(tt.text))
			} else {
				bound, err = s.binary(tt.binary)
			}
			if err != nil {
				t.Fatal(err)
			}
			took := live(t, func() any {
				m := tt.message.ProtoReflect().New().Interface()
				if tt.text != "" {
					err = protojson.Unmarshal([]byte(tt.text), m)
				} else {
					err = proto.Unmarshal(tt.binary, m)
				}
				return m
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes on the wire take %d, the bound is %d", len(tt.binary)+len(tt.text), took, bound)
			if took > bound {
				t.Errorf("it takes %d bytes, the bound is %d", took, bound)
			}
			if bound > tt.most*max(took, 0)+64<<10 {
				t.Errorf("the bound is %d, it takes %d", bound, took)
			}
		})
	}
}

// TestRepeatedFieldsAreBoundedBeforeDecoding: one element more than the rules of
// a field allow is rejected, and every field without rules has a limit too.
func TestRepeatedFieldsAreBoundedBeforeDecoding(t *testing.T) {
	var all shapes
	for _, tt := range []struct {
		message protoreflect.ProtoMessage
		most    int
		one     []byte
	}{
		{&entityv1.SendCommandStreamRequest{}, 1024, field(1, nil)},
		{&entityv1.SubscribeEventsRequest{}, 4096, field(5, []byte{1})},
		{&entityv1.SubscribeEventsRequest{}, 4096, protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), 1)},
		{&clusterv1.PutRoleRequest{}, 64, field(2, nil)},
		{&clusterv1.RoleRule{}, maxElements, field(2, nil)},
	} {
		s := all.of(tt.message.ProtoReflect().Descriptor())
		if _, err := s.binary(bytes.Repeat(tt.one, tt.most)); err != nil {
			t.Errorf("%T with %d elements: %v", tt.message, tt.most, err)
		}
		var many *tooManyError
		if _, err := s.binary(bytes.Repeat(tt.one, tt.most+1)); !errors.As(err, &many) || many.Most != tt.most {
			t.Errorf("%T with %d elements: %v", tt.message, tt.most+1, err)
		}
	}
}

// FuzzDecodedBound: whatever the bytes, the walk terminates, and no message that
// decodes has more elements than were counted.
func FuzzDecodedBound(f *testing.F) {
	f.Add([]byte(`{"json":[{"a":[1,"\"",{}]}]}`))
	f.Add(field(6, field(6, field(1, nil))))
	var all shapes
	s := all.of((&entityv1.SendCommandRequest{}).ProtoReflect().Descriptor())
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, bound := range []func() int64{
			func() int64 { n, _ := s.binary(data); return n }, func() int64 { return s.text(data) },
		} {
			if n := bound(); n < 0 {
				t.Errorf("the bound is %d", n)
			}
		}
		m := &entityv1.SendCommandRequest{}
		if proto.Unmarshal(data, m) == nil {
			if n, err := s.binary(data); err == nil && n < int64(proto.Size(m.GetJson())) {
				t.Errorf("the bound is %d, the payload has %d bytes", n, proto.Size(m.GetJson()))
			}
		}
	})
}
