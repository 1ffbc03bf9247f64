package cli

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hostd/hostd/api/jsonvalue"
)

// Object is a message of the API in the form that -o json prints: each field
// under its JSON name, in the order of the message, whether or not it is set.
// Numbers of any size are JSON numbers, bytes are base64, times are RFC 3339, and
// durations are seconds such as "1.5s".
// Messages and optional fields that are not set are omitted.
type Object struct{ members []member }

type member struct {
	name  string
	value any
}

// View returns a message as it is printed.
func View(m proto.Message) *Object {
	o := &Object{}
	reflected := m.ProtoReflect()
	fields := reflected.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !reflected.Has(f) {
			continue
		}
		o.Set(f.JSONName(), viewField(f, reflected.Get(f)))
	}
	return o
}

// Views returns several messages as they are printed.
func Views[M proto.Message](messages []M) []*Object {
	out := make([]*Object, len(messages))
	for i, m := range messages {
		out[i] = View(m)
	}
	return out
}

func viewField(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	if !f.IsList() {
		return viewValue(f, v)
	}
	out := make([]any, v.List().Len())
	for i := range out {
		out[i] = viewValue(f, v.List().Get(i))
	}
	return out
}

func viewValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	if f.Message() == nil {
		return v.Interface()
	}
	switch m := v.Message().Interface().(type) {
	case *timestamppb.Timestamp:
		return m.AsTime()
	case *durationpb.Duration:
		text, err := protojson.Marshal(m)
		if err != nil {
			return nil
		}
		return json.RawMessage(text)
	case *structpb.Value:
		return viewJSON(m)
	case *structpb.Struct:
		return viewJSON(structpb.NewStructValue(m))
	default:
		return View(m)
	}
}

// viewJSON returns a JSON value as it is printed: its numbers keep their
// digits.
func viewJSON(v *structpb.Value) any {
	text, err := jsonvalue.Append(nil, v)
	if err != nil {
		return nil
	}
	return json.RawMessage(text)
}

// Set sets the value of a member, and appends the member if it is missing.
func (o *Object) Set(name string, value any) *Object {
	for i := range o.members {
		if o.members[i].name == name {
			o.members[i].value = value
			return o
		}
	}
	o.members = append(o.members, member{name, value})
	return o
}

// MarshalJSON encodes the members in order.
func (o *Object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for i, m := range o.members {
		out.WriteByte("{,"[min(i, 1)])
		if err := enc.Encode(m.name); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	if len(o.members) == 0 {
		out.WriteByte('{')
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}
