// Package former reads and writes fields of the API in the form that the
// previous release knows, after the API has given them a new type and a new
// number. The former numbers are reserved in the protos, so that the fields are
// absent from generated code, JSON and documents; in the binary encoding they
// are unknown fields of a message. A client or a node of the previous release
// uses the binary encoding.
//
// All functions are pure. A message must not be changed concurrently.
package former

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Number returns the former field with a number in m if it is a varint, and 0
// if it is absent. Like in a generated type, the last value counts.
func Number(m proto.Message, field protowire.Number) (out uint64) {
	each(m, field, protowire.VarintType, func(value []byte) {
		out, _ = protowire.ConsumeVarint(value)
	})
	return out
}

// Text returns the former field with a number in m if it is a string, and ""
// if it is absent. Like in a generated type, the last value counts.
func Text(m proto.Message, field protowire.Number) (out string) {
	each(m, field, protowire.BytesType, func(value []byte) {
		text, _ := protowire.ConsumeBytes(value)
		out = string(text)
	})
	return out
}

// SetNumber adds a former field with a number to m, unless its value is 0.
func SetNumber(m proto.Message, field protowire.Number, value uint64) {
	if value != 0 {
		add(m, protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), value))
	}
}

// SetText adds a former field with a number to m, unless its value is "".
func SetText(m proto.Message, field protowire.Number, value string) {
	if value != "" {
		add(m, protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), value))
	}
}

func add(m proto.Message, field []byte) {
	r := m.ProtoReflect()
	r.SetUnknown(append(r.GetUnknown(), field...))
}

// each calls fn with every value of a type that an unknown field of m has. The
// decoder of m has checked the encoding.
func each(m proto.Message, field protowire.Number, t protowire.Type, fn func(value []byte)) {
	for b := []byte(m.ProtoReflect().GetUnknown()); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return
		}
		if number == field && kind == t {
			fn(b[n : n+size])
		}
		b = b[n+size:]
	}
}
