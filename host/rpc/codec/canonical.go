package codec

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"
)

// ValueError: a value has no JSON text.
type ValueError struct{ Reason string }

func (e *ValueError) Error() string { return e.Reason }

// Code is what callers are told: the value is theirs.
func (e *ValueError) Code() connect.Code { return connect.CodeInvalidArgument }

// AppendCanonical appends v as compact JSON text with sorted keys: one value
// has one text, so a command sent again hashes the same. Numbers are printed
// like JavaScript's, integral ones without exponent or fraction below 1e21.
func AppendCanonical(dst []byte, v *structpb.Value) ([]byte, error) {
	switch k := v.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return append(dst, "null"...), nil
	case *structpb.Value_BoolValue:
		return strconv.AppendBool(dst, k.BoolValue), nil
	case *structpb.Value_NumberValue:
		return appendNumber(dst, k.NumberValue)
	case *structpb.Value_StringValue:
		return appendString(dst, k.StringValue), nil
	case *structpb.Value_ListValue:
		dst = append(dst, '[')
		for i, e := range k.ListValue.GetValues() {
			if i > 0 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = AppendCanonical(dst, e); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case *structpb.Value_StructValue:
		return appendObject(dst, k.StructValue.GetFields())
	}
	return nil, &ValueError{"the JSON value is of an unknown kind"}
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
		dst = append(appendString(dst, k), ':')
		var err error
		if dst, err = AppendCanonical(dst, members[k]); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func appendNumber(dst []byte, f float64) ([]byte, error) {
	abs := math.Abs(f)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return nil, &ValueError{"the JSON value holds a number that is not finite"}
	case f == 0:
		return append(dst, '0'), nil
	case abs >= 1e-6 && abs < 1e21:
		return strconv.AppendFloat(dst, f, 'f', -1, 64), nil
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); n-start > 4 && dst[n-3] == '-' && dst[n-2] == '0' { // e-09 to e-9
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst, nil
}

func appendString(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}

// maxExact is the largest integer up to which every integer is a float64.
const maxExact = 1 << 53

// Parse reads JSON text into a value. Integers that a float64 would change
// become strings of their digits. ok is false for what is not one JSON text.
func Parse(text []byte) (v *structpb.Value, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var parsed any
	if d.Decode(&parsed) != nil || d.More() || !Valid(text) {
		return nil, false
	}
	return ValueOf(parsed), true
}

// Valid reports whether data is exactly one JSON text in UTF-8.
func Valid(data []byte) bool { return json.Valid(data) && utf8.Valid(data) }

// ValueOf is Parse of what encoding/json has decoded with UseNumber.
func ValueOf(parsed any) *structpb.Value {
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
			list.Values[i] = ValueOf(p[i])
		}
		return structpb.NewListValue(list)
	case map[string]any:
		object := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(p))}
		for k := range p {
			object.Fields[k] = ValueOf(p[k])
		}
		return structpb.NewStructValue(object)
	}
	return structpb.NewNullValue()
}

func numberOf(literal string) *structpb.Value {
	f, err := strconv.ParseFloat(literal, 64)
	integer := !strings.ContainsAny(literal, ".eE")
	if err != nil || integer && math.Abs(f) >= maxExact && !exact(literal, f) {
		return structpb.NewStringValue(literal)
	}
	return structpb.NewNumberValue(f)
}

// exact reports whether the integer literal is 2^53 itself; from there on a
// float64 skips integers, and a receiver cannot tell which one was meant.
func exact(literal string, f float64) bool {
	return math.Abs(f) == maxExact && strings.TrimPrefix(literal, "-") == "9007199254740992"
}
