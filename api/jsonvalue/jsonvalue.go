// Package jsonvalue converts JSON text to google.protobuf.Value and back
// without losing digits.
//
// A Value holds numbers as doubles, which represent every integer only up to
// 2^53. A larger integer is stored as a string_value of its digits; programs
// that do not know this package see that string. An unknown field of the Value
// marks the string as a number. The binary form keeps the mark, and other
// programs ignore it. The JSON form of the API, which nodes read and write
// themselves, contains the number.
//
// The package does no I/O and starts no goroutine.
package jsonvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/abi/jsontext"
)

// maxExact is the largest integer up to which a double represents every integer
// exactly.
const maxExact = 1 << 53

// markField is the number of the field that marks a string as the digits of an
// integer.
const markField = 1000

var mark = protowire.AppendVarint(protowire.AppendTag(nil, markField, protowire.VarintType), 1)

// Parse reads JSON text by the rules of package jsontext.
func Parse(text []byte) (*structpb.Value, error) {
	canonical, err := jsontext.Canonical(text)
	if err != nil {
		return nil, err
	}
	v, ok := decode(canonical)
	if !ok {
		return nil, errors.New("the JSON text is nested too deep")
	}
	return v, nil
}

// ParseAnswer reads JSON text that a module wrote and that can no longer be
// rejected. It accepts what Parse rejects: an unpaired surrogate becomes
// U+FFFD, the last of duplicate members counts, and a number beyond the range
// of a double becomes a string. ok is false if it is not JSON text at all.
func ParseAnswer(text []byte) (v *structpb.Value, ok bool) {
	if v, err := Parse(text); err == nil {
		return v, true
	}
	if !json.Valid(text) || !utf8.Valid(text) {
		return nil, false
	}
	return decode(text)
}

func decode(text []byte) (*structpb.Value, bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var parsed any
	if d.Decode(&parsed) != nil {
		return nil, false
	}
	return Of(parsed), true
}

// Of is Parse for a value that encoding/json decoded with UseNumber.
func Of(parsed any) *structpb.Value {
	switch p := parsed.(type) {
	case bool:
		return structpb.NewBoolValue(p)
	case string:
		return structpb.NewStringValue(p)
	case json.Number:
		return numberOf(p.String())
	case []any:
		list := &structpb.ListValue{Values: make([]*structpb.Value, len(p))}
		for i := range p {
			list.Values[i] = Of(p[i])
		}
		return structpb.NewListValue(list)
	case map[string]any:
		object := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(p))}
		for k := range p {
			object.Fields[k] = Of(p[k])
		}
		return structpb.NewStructValue(object)
	}
	return structpb.NewNullValue()
}

func numberOf(literal string) *structpb.Value {
	f, err := strconv.ParseFloat(literal, 64)
	switch {
	case err != nil:
		return structpb.NewStringValue(literal)
	case math.Abs(f) < maxExact || strings.ContainsAny(literal, ".eE") || literal == strconv.Itoa(maxExact) || literal == strconv.Itoa(-maxExact):
		return structpb.NewNumberValue(f)
	}
	// Beyond 2^53, a receiver cannot determine which integer a double represents.
	v := structpb.NewStringValue(literal)
	if IsInteger(literal) {
		v.ProtoReflect().SetUnknown(mark)
	}
	return v
}

// IsInteger reports whether a text is a 64-bit integer in canonical form.
func IsInteger(text string) bool {
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return false
	}
	for i := 1; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	canonical, err := jsontext.Canonical([]byte(text))
	return err == nil && string(canonical) == text
}

// Digits returns the digits of an integer that a Value holds as a marked
// string.
func Digits(v *structpb.Value) (string, bool) {
	s, is := v.GetKind().(*structpb.Value_StringValue)
	if !is {
		return "", false
	}
	unknown := v.ProtoReflect().GetUnknown()
	return s.StringValue, len(unknown) > 0 && bytes.Contains(unknown, mark) && IsInteger(s.StringValue)
}

// HasDigits reports whether a Value, or one inside it, is a marked string.
func HasDigits(v *structpb.Value) bool {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		_, is := Digits(v)
		return is
	case *structpb.Value_ListValue:
		return slices.ContainsFunc(k.ListValue.GetValues(), HasDigits)
	case *structpb.Value_StructValue:
		for _, v := range k.StructValue.GetFields() {
			if HasDigits(v) {
				return true
			}
		}
	}
	return false
}

// Append appends the canonical text of a Value. Equal values have equal texts,
// so that a command that is sent again has the same hash. It fails for numbers
// that are not finite and for a Value without a kind.
func Append(dst []byte, v *structpb.Value) ([]byte, error) {
	switch k := v.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return append(dst, "null"...), nil
	case *structpb.Value_BoolValue:
		return strconv.AppendBool(dst, k.BoolValue), nil
	case *structpb.Value_NumberValue:
		if math.IsNaN(k.NumberValue) || math.IsInf(k.NumberValue, 0) {
			return nil, errors.New("the JSON value holds a number that is not finite")
		}
		return jsontext.AppendFloat(dst, k.NumberValue), nil
	case *structpb.Value_StringValue:
		if digits, is := Digits(v); is {
			return append(dst, digits...), nil
		}
		return jsontext.AppendString(dst, k.StringValue), nil
	case *structpb.Value_ListValue:
		dst = append(dst, '[')
		for i, e := range k.ListValue.GetValues() {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = Append(dst, e); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case *structpb.Value_StructValue:
		return appendObject(dst, k.StructValue.GetFields())
	}
	return nil, errors.New("the JSON value is of an unknown kind")
}

func appendObject(dst []byte, members map[string]*structpb.Value) ([]byte, error) {
	var few [8]string
	keys := few[:0]
	for k := range members {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsontext.AppendString(dst, k), ':')
		var err error
		if dst, err = Append(dst, members[k]); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}
