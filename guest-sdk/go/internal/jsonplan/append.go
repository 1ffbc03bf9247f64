package jsonplan

import (
	"encoding/base64"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// Errors of Plan.Append, apart from those of a type's own methods.
var (
	ErrNotFinite = errors.New("json: NaN and infinity cannot be written as JSON")
	ErrDepth     = errors.New("json: nested too deep")
)

// sliceHeader is the memory layout of a slice.
type sliceHeader struct {
	data unsafe.Pointer
	len  int
	cap  int
}

func (n *node) append(dst []byte, p unsafe.Pointer, depth int) ([]byte, error) {
	switch n.op {
	case opBool:
		return strconv.AppendBool(dst, *(*bool)(p)), nil
	case opInt8:
		return strconv.AppendInt(dst, int64(*(*int8)(p)), 10), nil
	case opInt16:
		return strconv.AppendInt(dst, int64(*(*int16)(p)), 10), nil
	case opInt32:
		return strconv.AppendInt(dst, int64(*(*int32)(p)), 10), nil
	case opInt64:
		return appendInt(dst, *(*int64)(p)), nil
	case opUint8:
		return strconv.AppendUint(dst, uint64(*(*uint8)(p)), 10), nil
	case opUint16:
		return strconv.AppendUint(dst, uint64(*(*uint16)(p)), 10), nil
	case opUint32:
		return strconv.AppendUint(dst, uint64(*(*uint32)(p)), 10), nil
	case opUint64:
		return strconv.AppendUint(dst, *(*uint64)(p), 10), nil
	case opFloat32:
		return appendFloat(dst, float64(*(*float32)(p)), 32)
	case opFloat64:
		return appendFloat(dst, *(*float64)(p), 64)
	case opString:
		return appendString(dst, *(*string)(p)), nil
	case opBytes:
		return appendBytes(dst, *(*[]byte)(p)), nil
	case opJSONMethods, opTextMethods:
		return n.appendMethods(dst, p)
	}
	if depth == MaxDepth {
		return dst, ErrDepth
	}
	switch n.op {
	case opStruct:
		return n.appendStruct(dst, p, depth+1)
	case opSlice:
		header := (*sliceHeader)(p)
		if header.data == nil {
			return append(dst, "null"...), nil
		}
		return n.appendElements(dst, header.data, header.len, depth+1)
	case opArray:
		return n.appendElements(dst, p, n.length, depth+1)
	case opMap:
		return n.appendMap(dst, p, depth+1)
	default: // opPointer
		if target := *(*unsafe.Pointer)(p); target != nil {
			return n.elem.append(dst, target, depth+1)
		}
		return append(dst, "null"...), nil
	}
}

func (n *node) appendStruct(dst []byte, p unsafe.Pointer, depth int) ([]byte, error) {
	dst = append(dst, '{')
	start := len(dst)
	for i := range n.fields {
		f := &n.fields[i]
		value := unsafe.Add(p, f.offset)
		if f.omitEmpty && f.node.empty(value) {
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, f.key...)
		if f.node.op == opInt64 {
			dst = appendInt(dst, *(*int64)(value))
			continue
		}
		var err error
		if dst, err = f.node.append(dst, value, depth); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func (n *node) appendElements(dst []byte, data unsafe.Pointer, count, depth int) ([]byte, error) {
	dst = append(dst, '[')
	for i := range count {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = n.elem.append(dst, unsafe.Add(data, uintptr(i)*n.elem.size), depth); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// appendMap writes members in the order of their keys, so that equal maps have
// equal texts.
func (n *node) appendMap(dst []byte, p unsafe.Pointer, depth int) ([]byte, error) {
	m := reflect.NewAt(n.typ, p).Elem()
	if m.IsNil() {
		return append(dst, "null"...), nil
	}
	keys := make([]string, 0, m.Len())
	iterator := m.MapRange()
	key := reflect.New(n.typ.Key()).Elem()
	for iterator.Next() {
		key.SetIterKey(iterator)
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	value := reflect.New(n.typ.Elem())
	dst = append(dst, '{')
	for i, name := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, name), ':')
		key.SetString(name)
		value.Elem().Set(m.MapIndex(key))
		var err error
		if dst, err = n.elem.append(dst, value.UnsafePointer(), depth); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// appendInt is strconv.AppendInt in base 10, without calls of other functions.
func appendInt(dst []byte, v int64) []byte {
	var digits [20]byte
	u := uint64(v)
	if v < 0 {
		u = -u
	}
	i := len(digits)
	for u >= 10 {
		i--
		digits[i] = byte('0' + u%10)
		u /= 10
	}
	i--
	digits[i] = byte('0' + u)
	if v < 0 {
		i--
		digits[i] = '-'
	}
	return append(dst, digits[i:]...)
}

// empty reports whether omitempty omits the value.
func (n *node) empty(p unsafe.Pointer) bool {
	switch n.typ.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Uint8:
		return *(*uint8)(p) == 0
	case reflect.Int16, reflect.Uint16:
		return *(*uint16)(p) == 0
	case reflect.Int32, reflect.Uint32:
		return *(*uint32)(p) == 0
	case reflect.Int, reflect.Uint:
		return *(*uint)(p) == 0
	case reflect.Int64, reflect.Uint64:
		return *(*uint64)(p) == 0
	case reflect.Float32:
		return *(*float32)(p) == 0
	case reflect.Float64:
		return *(*float64)(p) == 0
	case reflect.String:
		return *(*string)(p) == ""
	case reflect.Slice:
		return (*sliceHeader)(p).len == 0
	case reflect.Array:
		return n.length == 0
	case reflect.Map:
		return reflect.NewAt(n.typ, p).Elem().Len() == 0
	case reflect.Pointer:
		return *(*unsafe.Pointer)(p) == nil
	}
	return false
}

func appendBytes(dst, value []byte) []byte {
	if value == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, value)
	return append(dst, '"')
}

// appendFloat formats a number like ECMAScript and encoding/json: in the
// shortest form, with an exponent if it is below 1e-6 or at least 1e21.
func appendFloat(dst []byte, f float64, bits int) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, ErrNotFinite
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 {
		if bits == 64 && (abs < 1e-6 || abs >= 1e21) || bits == 32 && (float32(abs) < 1e-6 || float32(abs) >= 1e21) {
			format = 'e'
		}
	}
	dst = strconv.AppendFloat(dst, f, format, -1, bits)
	if format == 'e' { // e-09 becomes e-9
		if n := len(dst); n >= 4 && dst[n-4] == 'e' && (dst[n-3] == '-' || dst[n-3] == '+') && dst[n-2] == '0' {
			dst[n-2] = dst[n-1]
			dst = dst[:n-1]
		}
	}
	return dst, nil
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := plainText(s, 0); i < len(s); i = plainText(s, i) {
		c := s[i]
		if c < utf8.RuneSelf {
			dst = append(dst, s[start:i]...)
			dst = appendEscape(dst, c)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
		if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
			dst = append(dst, s[start:i]...)
			dst = append(dst, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
