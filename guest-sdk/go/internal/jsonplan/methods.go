package jsonplan

import (
	"encoding"
	"reflect"
	"unsafe"
)

// The interfaces that encoding/json looks for, declared here so that a guest
// does not link it.
type (
	jsonMarshaler   interface{ MarshalJSON() ([]byte, error) }
	jsonUnmarshaler interface{ UnmarshalJSON([]byte) error }
)

var (
	jsonMarshalerType   = reflect.TypeFor[jsonMarshaler]()
	jsonUnmarshalerType = reflect.TypeFor[jsonUnmarshaler]()
	textMarshalerType   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// methods reports whether t has its own methods to encode and decode itself. It
// returns an error if t has only one of these methods, because its output could
// then not be decoded.
func methods(t reflect.Type, path string) (op, bool, error) {
	pointer := reflect.PointerTo(t)
	for _, pair := range []struct {
		op            op
		write, read   reflect.Type
		writer, other string
	}{
		{opJSONMethods, jsonMarshalerType, jsonUnmarshalerType, "MarshalJSON", "UnmarshalJSON"},
		{opTextMethods, textMarshalerType, textUnmarshalerType, "MarshalText", "UnmarshalText"},
	} {
		writes, reads := pointer.Implements(pair.write), pointer.Implements(pair.read)
		switch {
		case writes && reads:
			return pair.op, true, nil
		case writes:
			return 0, false, &TypeError{path, t.String() + " has " + pair.writer + " without " + pair.other}
		case reads:
			return 0, false, &TypeError{path, t.String() + " has " + pair.other + " without " + pair.writer}
		}
	}
	return 0, false, nil
}

func (n *node) appendMethods(dst []byte, p unsafe.Pointer) ([]byte, error) {
	value := reflect.NewAt(n.typ, p).Interface()
	if n.op == opTextMethods {
		text, err := value.(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return dst, err
		}
		return appendString(dst, text), nil
	}
	text, err := value.(jsonMarshaler).MarshalJSON()
	if err != nil {
		return dst, err
	}
	return appendCompact(dst, text)
}

// appendCompact appends text without the white space between its tokens, or
// returns why it is not JSON.
func appendCompact(dst, text []byte) ([]byte, error) {
	d := decoder{data: text}
	d.space()
	if err := d.skip(); err != nil {
		return dst, err
	}
	d.space()
	if d.pos != len(text) {
		return dst, d.fault("unexpected bytes after the value")
	}
	inString := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case inString && c == '\\':
			dst = append(dst, c)
			i++
			c = text[i]
		case c == '"':
			inString = !inString
		case !inString && isSpace(c):
			continue
		}
		dst = append(dst, c)
	}
	return dst, nil
}

func (n *node) decodeMethods(d *decoder, p unsafe.Pointer) error {
	value := reflect.NewAt(n.typ, p).Interface()
	if n.op == opTextMethods {
		if d.null() {
			return nil
		}
		text, err := d.text()
		if err != nil {
			return err
		}
		return d.wrap(value.(encoding.TextUnmarshaler).UnmarshalText(append([]byte(nil), text...)))
	}
	start := d.pos
	if err := d.skip(); err != nil {
		return err
	}
	text := append([]byte(nil), d.data[start:d.pos]...)
	return d.wrap(value.(jsonUnmarshaler).UnmarshalJSON(text))
}
