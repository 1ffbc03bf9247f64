package jsonplan

import (
	"encoding/base64"
	"math"
	"reflect"
	"strconv"
	"unsafe"

	"github.com/hostd/hostd/abi/jsontext"
)

func (n *node) decode(d *decoder, p unsafe.Pointer) error {
	switch n.op {
	case opStruct:
		return n.decodeStruct(d, p)
	case opJSONMethods, opTextMethods:
		return n.decodeMethods(d, p)
	}
	if d.null() { // null keeps the zero value
		return nil
	}
	switch n.op {
	case opBool:
		switch {
		case d.literal("true"):
			*(*bool)(p) = true
		case !d.literal("false"):
			return d.unexpectedToken("true or false")
		}
		return nil
	case opString:
		text, err := d.text()
		if err == nil {
			*(*string)(p) = string(text)
		}
		return err
	case opInt8, opInt16, opInt32, opInt64:
		return n.decodeInt(d, p)
	case opUint8, opUint16, opUint32, opUint64:
		return n.decodeUint(d, p)
	case opFloat32, opFloat64:
		return n.decodeFloat(d, p)
	case opBytes:
		if d.peek() == '[' {
			return n.decodeSlice(d, p)
		}
		return decodeBytes(d, p)
	case opSlice:
		return n.decodeSlice(d, p)
	case opArray:
		return n.decodeArray(d, p)
	case opMap:
		return n.decodeMap(d, p)
	default: // opPointer
		target := reflect.New(n.elem.typ)
		*(*unsafe.Pointer)(p) = target.UnsafePointer()
		return n.elem.decode(d, target.UnsafePointer())
	}
}

// decodeStruct expects members in the order of the fields and no white space,
// which is how hosts and Append write them. If a member differs, it falls back
// to the general path for that member.
func (n *node) decodeStruct(d *decoder, p unsafe.Pointer) error {
	if d.peek() != '{' {
		if d.null() {
			return nil
		}
		return d.unexpectedToken("an object")
	}
	if err := d.open('{', "an object"); err != nil {
		return err
	}
	if more, err := d.more('}', true); err != nil || !more {
		return err
	}
	next := 0
	seen := uint64(0)
	for {
		i, err := n.member(d, next)
		if err != nil {
			return err
		}
		if i < 0 {
			err = d.skip()
		} else {
			f := &n.fields[i]
			value := unsafe.Add(p, f.offset)
			if bit := uint64(1) << (i & 63); seen&bit != 0 {
				reflect.NewAt(f.node.typ, value).Elem().SetZero()
			} else {
				seen |= bit
			}
			next = i + 1
			err = f.node.decode(d, value)
		}
		if err != nil {
			return err
		}
		if d.pos+1 < len(d.data) && d.data[d.pos] == ',' && d.data[d.pos+1] == '"' {
			d.pos++
			continue
		}
		if more, err := d.more('}', false); err != nil || !more {
			return err
		}
	}
}

// member reads a member's name up to its value. It returns the index of the
// field, or -1 if there is none.
func (n *node) member(d *decoder, next int) (int, error) {
	if next < len(n.fields) {
		key := n.fields[next].key
		if end := d.pos + len(key); end < len(d.data) && string(d.data[d.pos:end]) == key {
			d.pos = end
			if d.data[end] <= ' ' {
				d.space()
			}
			return next, nil
		}
	}
	name, err := d.name()
	if err != nil {
		return 0, err
	}
	return n.find(name, next), nil
}

// find returns the index of the field with the given name. It checks the field
// next first, because the fast path also fails for that field's name if the
// name was written with an escape or is followed by white space.
func (n *node) find(name []byte, next int) int {
	if next < len(n.fields) && n.fields[next].name == string(name) {
		return next
	}
	if n.byName != nil {
		if i, ok := n.byName[string(name)]; ok {
			return int(i)
		}
		return -1
	}
	for i := range n.fields {
		if n.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

// integer reads an integer, bare or as a string of digits, and returns its sign
// separately. A number with a fraction or an exponent may be an integer too,
// such as 5.0.
func (d *decoder) integer() (digits []byte, negative bool, err error) {
	quotedAt := d.pos
	quoted := d.peek() == '"'
	if quoted {
		d.pos++
	}
	text, whole, err := d.number()
	switch {
	case err != nil:
		return nil, false, err
	case quoted && d.peek() != '"':
		return nil, false, d.unexpectedToken("the end of an integer")
	case !whole:
		negative, value, is := jsontext.Integer(text)
		if !is || quoted {
			d.pos = quotedAt
			return nil, false, d.fault("expected an integer")
		}
		return strconv.AppendUint(nil, value, 10), negative, nil
	}
	if quoted {
		d.pos++
	}
	if text[0] == '-' {
		return text[1:], true, nil
	}
	return text, false, nil
}

// magnitude returns the value of digits, or false if it does not fit.
func magnitude(digits []byte) (uint64, bool) {
	if len(digits) > 20 {
		return 0, false
	}
	var v uint64
	for i, c := range digits {
		digit := uint64(c - '0')
		if i == 19 && (v > math.MaxUint64/10 || v*10 > math.MaxUint64-digit) {
			return 0, false
		}
		v = v*10 + digit
	}
	return v, true
}

func (n *node) decodeInt(d *decoder, p unsafe.Pointer) error {
	digits, negative, err := d.integer()
	if err != nil {
		return err
	}
	m, ok := magnitude(digits)
	limit := uint64(1) << (n.size*8 - 1) // one more than the largest positive value
	if !ok || m > limit || m == limit && !negative {
		return d.fault("integer out of range")
	}
	v := int64(m)
	if negative {
		v = -v
	}
	switch n.size {
	case 1:
		*(*int8)(p) = int8(v)
	case 2:
		*(*int16)(p) = int16(v)
	case 4:
		*(*int32)(p) = int32(v)
	default:
		*(*int64)(p) = v
	}
	return nil
}

func (n *node) decodeUint(d *decoder, p unsafe.Pointer) error {
	digits, negative, err := d.integer()
	if err != nil {
		return err
	}
	m, ok := magnitude(digits)
	if !ok || negative || n.size < 8 && m>>(n.size*8) != 0 {
		return d.fault("integer out of range")
	}
	switch n.size {
	case 1:
		*(*uint8)(p) = uint8(m)
	case 2:
		*(*uint16)(p) = uint16(m)
	case 4:
		*(*uint32)(p) = uint32(m)
	default:
		*(*uint64)(p) = m
	}
	return nil
}

func (n *node) decodeFloat(d *decoder, p unsafe.Pointer) error {
	text, _, err := d.number()
	if err != nil {
		return err
	}
	f, err := strconv.ParseFloat(string(text), int(n.size)*8)
	if err != nil {
		return d.fault("number out of range")
	}
	if n.op == opFloat32 {
		*(*float32)(p) = float32(f)
		return nil
	}
	*(*float64)(p) = f
	return nil
}

func decodeBytes(d *decoder, p unsafe.Pointer) error {
	text, err := d.text()
	if err != nil {
		return err
	}
	value := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	count, err := base64.StdEncoding.Decode(value, text)
	if err != nil {
		return d.fault("not base64")
	}
	*(*[]byte)(p) = value[:count]
	return nil
}

func (n *node) decodeSlice(d *decoder, p unsafe.Pointer) error {
	if err := d.open('[', "a list"); err != nil {
		return err
	}
	slice := reflect.NewAt(n.typ, p).Elem()
	header := (*sliceHeader)(p)
	for i := 0; ; i++ {
		more, err := d.more(']', i == 0)
		if err != nil {
			return err
		}
		if !more {
			if i == 0 {
				slice.Set(reflect.MakeSlice(n.typ, 0, 0))
			}
			return nil
		}
		if i == header.cap {
			slice.Grow(1)
		}
		slice.SetLen(i + 1)
		if err := n.elem.decode(d, unsafe.Add(header.data, uintptr(i)*n.elem.size)); err != nil {
			return err
		}
	}
}

// decodeArray skips elements beyond the array's length and leaves missing
// elements zero.
func (n *node) decodeArray(d *decoder, p unsafe.Pointer) error {
	if err := d.open('[', "a list"); err != nil {
		return err
	}
	for i := 0; ; i++ {
		more, err := d.more(']', i == 0)
		if err != nil || !more {
			return err
		}
		if i >= n.length {
			err = d.skip()
		} else {
			err = n.elem.decode(d, unsafe.Add(p, uintptr(i)*n.elem.size))
		}
		if err != nil {
			return err
		}
	}
}

func (n *node) decodeMap(d *decoder, p unsafe.Pointer) error {
	if err := d.open('{', "an object"); err != nil {
		return err
	}
	m := reflect.MakeMap(n.typ)
	reflect.NewAt(n.typ, p).Elem().Set(m)
	key := reflect.New(n.typ.Key()).Elem()
	value := reflect.New(n.typ.Elem())
	for first := true; ; first = false {
		more, err := d.more('}', first)
		if err != nil || !more {
			return err
		}
		name, err := d.name()
		if err != nil {
			return err
		}
		key.SetString(string(name))
		value.Elem().SetZero()
		if err := n.elem.decode(d, value.UnsafePointer()); err != nil {
			return err
		}
		m.SetMapIndex(key, value.Elem())
	}
}
