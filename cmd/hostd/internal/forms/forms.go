// Package forms describes for people the values that a JSON Schema accepts, in
// one line. It starts no goroutine.
package forms

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/api/jsonvalue"
)

// Limits of a text.
const (
	maxText  = 400
	maxDepth = 6
)

// Text returns a short form of a schema, such as {amount?: int64} | null. It is
// empty if there is no schema.
func Text(schema *structpb.Value) string {
	if schema == nil {
		return ""
	}
	text := of(schema, maxDepth)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}

func of(schema *structpb.Value, depth int) string {
	if b, is := schema.GetKind().(*structpb.Value_BoolValue); is && !b.BoolValue {
		return "nothing"
	}
	f := schema.GetStructValue().GetFields()
	switch {
	case depth == 0:
		return "..."
	case f["$ref"] != nil:
		ref := f["$ref"].GetStringValue()
		return ref[strings.LastIndexByte(ref, '/')+1:]
	case f["enum"] != nil:
		return union(f["enum"].GetListValue().GetValues(), literal)
	case f["const"] != nil:
		return literal(f["const"])
	case f["anyOf"] != nil, f["oneOf"] != nil:
		list := append(f["anyOf"].GetListValue().GetValues(), f["oneOf"].GetListValue().GetValues()...)
		return union(list, func(v *structpb.Value) string { return of(v, depth-1) })
	}
	types := f["type"].GetListValue().GetValues()
	if f["type"] != nil && types == nil {
		types = []*structpb.Value{f["type"]}
	}
	if format := f["format"].GetStringValue(); format == "int64" || format == "uint64" {
		var rest []*structpb.Value
		for _, t := range types {
			if name := t.GetStringValue(); name != "integer" && name != "string" {
				rest = append(rest, t)
			}
		}
		return strings.Join(append([]string{format}, names(rest, f, depth)...), " | ")
	}
	if all := names(types, f, depth); all != nil {
		return strings.Join(all, " | ")
	}
	return "anything"
}

func names(types []*structpb.Value, f map[string]*structpb.Value, depth int) (out []string) {
	for _, t := range types {
		switch name := t.GetStringValue(); name {
		case "object":
			out = append(out, object(f, depth))
		case "array":
			item := "anything"
			if f["items"] != nil {
				item = of(f["items"], depth-1)
			}
			if strings.Contains(item, " | ") {
				item = "(" + item + ")"
			}
			out = append(out, item+"[]")
		default:
			out = append(out, name)
		}
	}
	return out
}

func object(f map[string]*structpb.Value, depth int) string {
	needed := map[string]bool{}
	for _, name := range f["required"].GetListValue().GetValues() {
		needed[name.GetStringValue()] = true
	}
	members := f["properties"].GetStructValue().GetFields()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		mark := "?: "
		if needed[name] {
			mark = ": "
		}
		out = append(out, name+mark+of(members[name], depth-1))
	}
	if more := f["additionalProperties"]; more.GetStructValue() != nil {
		out = append(out, "[name]: "+of(more, depth-1))
	}
	return "{" + strings.Join(out, ", ") + "}"
}

func union(list []*structpb.Value, text func(*structpb.Value) string) string {
	var out []string
	for _, v := range list {
		out = append(out, text(v))
	}
	return strings.Join(out, " | ")
}

func literal(v *structpb.Value) string {
	if digits, is := jsonvalue.Digits(v); is {
		return digits
	}
	if s, is := v.GetKind().(*structpb.Value_StringValue); is {
		return strconv.Quote(s.StringValue)
	}
	text, err := jsonvalue.Append(nil, v)
	if err != nil {
		return "..."
	}
	return string(text)
}
