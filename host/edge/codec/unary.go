package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/hostd/hostd/abi/schema"
)

// Unary is the JSON codec of unary calls. It rejects members that the message
// does not have, and suggests a similar name, and it rejects values that a field
// cannot have. JSON is often written by people, and a misspelled member would
// otherwise be ignored silently. In the binary form, which programs write,
// fields of later releases are ignored.
type Unary struct{ As string } // the name in the content type

func (c Unary) Name() string { return c.As }

// IsBinary returns false, because the output is text.
func (Unary) IsBinary() bool { return false }

func (c Unary) Marshal(msg any) ([]byte, error) { return c.MarshalAppend(nil, msg) }

func (Unary) MarshalAppend(to []byte, msg any) ([]byte, error) {
	m, ok := msg.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", msg)
	}
	return appendJSON(to, m)
}

// MarshalStable returns the same bytes for equal messages.
func (c Unary) MarshalStable(msg any) ([]byte, error) {
	text, err := c.Marshal(msg)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (Unary) Unmarshal(data []byte, msg any) error {
	m, ok := msg.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", msg)
	}
	if len(data) == 0 {
		return fmt.Errorf("the body is empty: send {} for an empty message")
	}
	return unmarshalJSON(data, m)
}

// unmarshalJSON parses a message. It rejects unknown members and invalid values.
// The numbers of JSON values keep their digits.
func unmarshalJSON(data []byte, m proto.Message) error {
	if !mayHold(m.ProtoReflect().Descriptor()) {
		return unmarshalRest(data, m)
	}
	rest, set, taken := takeValues(data, m.ProtoReflect().Descriptor())
	if err := unmarshalRest(rest, m); err != nil {
		return err
	}
	if taken == nil && set != nil {
		set(m.ProtoReflect())
	}
	return taken
}

func unmarshalRest(data []byte, m proto.Message) error {
	strict := protojson.Unmarshal(data, m)
	if strict == nil {
		return nil
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return err
	}
	proto.Reset(m) // only the error is left to find: free the decoded message first
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	if err := checkNames(m.ProtoReflect().Descriptor(), v); err != nil {
		return err
	}
	return strict
}

// checkNames checks the names of members and of enum values in the JSON form of
// a message.
func checkNames(m protoreflect.MessageDescriptor, v any) error {
	members, ok := v.(map[string]any)
	if !ok || m.ParentFile().Package() == "google.protobuf" {
		return nil // has its own JSON form
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		f := m.Fields().ByJSONName(name)
		if f == nil {
			f = m.Fields().ByTextName(name)
		}
		if f == nil {
			return unknown(m, name)
		}
		if err := checkValues(f, members[name]); err != nil {
			return err
		}
	}
	return nil
}

// unknown makes the error for an unknown member.
func unknown(m protoreflect.MessageDescriptor, name string) error {
	var fields []string
	for i := range m.Fields().Len() {
		fields = append(fields, m.Fields().Get(i).JSONName())
	}
	if nearest, found := schema.Nearest(name, slices.Values(fields)); found {
		return fmt.Errorf("%s: unknown member %.64q, did you mean %q?", m.Name(), name, nearest)
	}
	return fmt.Errorf("%s: unknown member %.64q, must be one of %s", m.Name(), name, strings.Join(fields, ", "))
}

func checkValues(f protoreflect.FieldDescriptor, value any) error {
	var values []any
	switch v := value.(type) {
	case []any:
		values = v
	case map[string]any:
		if !f.IsMap() {
			values = []any{v}
			break
		}
		f = f.MapValue()
		for _, each := range v {
			values = append(values, each)
		}
	default:
		values = []any{v}
	}
	for _, v := range values {
		var err error
		switch name, isName := v.(string); {
		case f.Message() != nil:
			err = checkNames(f.Message(), v)
		case f.Enum() != nil && isName && f.Enum().Values().ByName(protoreflect.Name(name)) == nil:
			err = fmt.Errorf("%s: %.64q must be one of %s", f.JSONName(), name, strings.Join(names(f.Enum()), ", "))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names lists the values of an enum.
func names(e protoreflect.EnumDescriptor) []string {
	var out []string
	for i := range e.Values().Len() {
		out = append(out, string(e.Values().Get(i).Name()))
	}
	return slices.Clip(out)
}
