package codec

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/abi/jsontext"
	"github.com/hostd/hostd/api/jsonvalue"
)

// protojson converts every number of a google.protobuf.Value to a double, which
// changes integers beyond 2^53. So the values of a message bypass protojson:
// find walks the JSON text and the message descriptor in parallel to locate
// the values, protojson handles the rest of the text, and package jsonvalue
// reads or writes the values.

const (
	valueName  protoreflect.FullName = "google.protobuf.Value"
	structName protoreflect.FullName = "google.protobuf.Struct"
)

// place is the position of a value in the JSON text of a message, and the path
// to the field that contains it.
type place struct {
	way        []step
	start, end int
}

// field returns the field that contains the value.
func (p *place) field() protoreflect.FieldDescriptor { return p.way[len(p.way)-1].field }

// step leads from a message to a field, or to an element of a list.
type step struct {
	field protoreflect.FieldDescriptor
	index int // -1 if the field is not a list
}

// valueHolders caches mayHold.
var valueHolders sync.Map // message name to bool

// mayHold reports whether a message, or a message nested in it, has a field
// of type google.protobuf.Value.
func mayHold(m protoreflect.MessageDescriptor) bool {
	if known, ok := valueHolders.Load(m.FullName()); ok {
		return known.(bool)
	}
	found := hasValues(m, map[protoreflect.FullName]bool{})
	valueHolders.Store(m.FullName(), found)
	return found
}

func hasValues(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[m.FullName()] {
		return false
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if f.Message() == nil || f.IsMap() {
			continue
		}
		if isValue(f) || !isWellKnown(f.Message()) && hasValues(f.Message(), seen) {
			return true
		}
	}
	return false
}

func isValue(f protoreflect.FieldDescriptor) bool {
	return f.Message().FullName() == valueName || f.Message().FullName() == structName
}

// isWellKnown reports whether a message has its own JSON form.
func isWellKnown(m protoreflect.MessageDescriptor) bool {
	return m.ParentFile().Package() == "google.protobuf"
}

// find appends the places of the values in the JSON text of a message. offset is
// the position of the text in the whole input.
func find(text []byte, offset int, m protoreflect.MessageDescriptor, way []step, to []place) ([]place, error) {
	if text[0] != '{' {
		return to, nil
	}
	var inner error
	err := jsontext.Split(text, func(name []byte, start, end int) {
		f := m.Fields().ByJSONName(string(name))
		if f == nil {
			f = m.Fields().ByTextName(string(name))
		}
		if inner != nil || f == nil || f.Message() == nil || f.IsMap() {
			return
		}
		to, inner = findIn(text[start:end], offset+start, f, way, to)
	})
	if err == nil {
		err = inner
	}
	return to, err
}

// findIn is find for the text of a field.
func findIn(text []byte, offset int, f protoreflect.FieldDescriptor, way []step, to []place) ([]place, error) {
	if f.IsList() {
		if text[0] != '[' {
			return to, nil
		}
		var inner error
		index := 0
		err := jsontext.Split(text, func(_ []byte, start, end int) {
			if inner == nil {
				to, inner = findOne(text[start:end], offset+start, step{f, index}, way, to)
			}
			index++
		})
		if err == nil {
			err = inner
		}
		return to, err
	}
	return findOne(text, offset, step{f, -1}, way, to)
}

func findOne(text []byte, offset int, s step, way []step, to []place) ([]place, error) {
	way = append(way[:len(way):len(way)], s)
	switch {
	case isValue(s.field):
		return append(to, place{way, offset, offset + len(text)}), nil
	case isWellKnown(s.field.Message()):
		return to, nil
	}
	return find(text, offset, s.field.Message(), way, to)
}

// at returns the message at the end of a path; nil if it does not exist.
func at(m protoreflect.Message, way []step) protoreflect.Message {
	for _, s := range way {
		if !m.Has(s.field) {
			return nil
		}
		v := m.Get(s.field)
		if s.index < 0 {
			m = v.Message()
			continue
		}
		if s.index >= v.List().Len() {
			return nil
		}
		m = v.List().Get(s.index).Message()
	}
	return m
}

// takeValues parses the values in the JSON text of a message. It returns the
// text with null instead of the values, and a function that sets the values in
// the message that was parsed from that text.
func takeValues(data []byte, m protoreflect.MessageDescriptor) (rest []byte, set func(protoreflect.Message), err error) {
	start := len(data) - len(bytes.TrimLeft(data, " \t\r\n"))
	if start == len(data) {
		return data, nil, nil
	}
	places, err := find(data[start:], start, m, nil, nil)
	if err != nil || len(places) == 0 {
		return data, nil, err
	}
	places = slices.DeleteFunc(places, func(p place) bool { return p.field().Message().FullName() != valueName })
	values := make([]*structpb.Value, len(places))
	last := 0
	for i, p := range places {
		if values[i], err = jsonvalue.Parse(data[p.start:p.end]); err != nil {
			return data, nil, fmt.Errorf("%s: %w", p.field().JSONName(), err)
		}
		rest = append(append(rest, data[last:p.start]...), "null"...)
		last = p.end
	}
	return append(rest, data[last:]...), func(m protoreflect.Message) {
		for i, p := range places {
			if into, ok := interfaceAt(m, p.way).(*structpb.Value); ok {
				into.Kind = values[i].Kind
				into.ProtoReflect().SetUnknown(values[i].ProtoReflect().GetUnknown())
			}
		}
	}, nil
}

func interfaceAt(m protoreflect.Message, way []step) proto.Message {
	if m = at(m, way); m == nil {
		return nil
	}
	return m.Interface()
}

// appendJSON appends a message as JSON. Numbers of values keep their digits.
func appendJSON(to []byte, m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil || !mayHold(m.ProtoReflect().Descriptor()) {
		return append(to, text...), err
	}
	places, err := find(text, 0, m.ProtoReflect().Descriptor(), nil, nil)
	if err != nil {
		return nil, err
	}
	last := 0
	for _, p := range places {
		var v *structpb.Value
		switch of := interfaceAt(m.ProtoReflect(), p.way).(type) {
		case *structpb.Value:
			v = of
		case *structpb.Struct:
			v = structpb.NewStructValue(of)
		}
		if !jsonvalue.HasDigits(v) {
			continue
		}
		to = append(to, text[last:p.start]...)
		if to, err = jsonvalue.Append(to, v); err != nil {
			return nil, err
		}
		last = p.end
	}
	return append(to, text[last:]...), nil
}
