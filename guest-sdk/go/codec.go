package hostd

import (
	"encoding"
	"errors"
	"reflect"
	"unsafe"

	"github.com/hostd/hostd/guest-sdk/go/internal/jsonplan"
)

// codec encodes and decodes values of one Go type. Decode expects a zero value
// and keeps no reference to src.
type codec interface {
	Append(dst []byte, value unsafe.Pointer) ([]byte, error)
	Decode(src []byte, value unsafe.Pointer) error
}

// codec returns the codec of a type in the definition's encoding, and prepares
// it on the first call.
func (d *definition) codec(typ reflect.Type) (codec, error) {
	if c, ok := d.codecs[typ]; ok {
		return c, nil
	}
	c, err := d.newCodec(typ)
	if err == nil {
		d.codecs[typ] = c
	}
	return c, err
}

func (d *definition) newCodec(typ reflect.Type) (codec, error) {
	if typ == reflect.TypeFor[None]() {
		return noCodec{}, nil
	}
	if d.encoding == JSON {
		plan, err := jsonplan.For(typ)
		if err != nil {
			return nil, err
		}
		return plan, nil
	}
	return bytesCodecFor(typ)
}

// decode decodes a payload. An empty payload means the zero value, so that a
// client does not have to send {} to a command whose members are all optional.
func decode(c codec, payload []byte, value unsafe.Pointer) error {
	if len(payload) == 0 {
		return nil
	}
	return c.Decode(payload, value)
}

// encode encodes a value whose type is known only at run time.
func (d *definition) encode(dst []byte, value any) ([]byte, error) {
	typ := reflect.TypeOf(value)
	if typ == nil {
		return dst, nil
	}
	c, err := d.codec(typ)
	if err != nil {
		return dst, err
	}
	copied := reflect.New(typ)
	copied.Elem().Set(reflect.ValueOf(value))
	return c.Append(dst, copied.UnsafePointer())
}

// noCodec is the codec of None.
type noCodec struct{}

func (noCodec) Append(dst []byte, _ unsafe.Pointer) ([]byte, error) { return dst, nil }
func (noCodec) Decode([]byte, unsafe.Pointer) error                 { return nil }

// RawJSON is JSON text that is not parsed, for example a member that the entity
// only passes on.
type RawJSON []byte

// MarshalJSON returns the text, or null if it is empty.
func (r RawJSON) MarshalJSON() ([]byte, error) {
	if len(r) == 0 {
		return []byte("null"), nil
	}
	return r, nil
}

// UnmarshalJSON keeps a copy of the text.
func (r *RawJSON) UnmarshalJSON(text []byte) error {
	*r = append((*r)[:0], text...)
	return nil
}

var errNotBytes = errors.New("with the bytes encoding, a type must be []byte or string, or have AppendBinary or MarshalBinary, and UnmarshalBinary")

func bytesCodecFor(typ reflect.Type) (codec, error) {
	pointer := reflect.PointerTo(typ)
	reads := pointer.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]())
	switch {
	case reads && pointer.Implements(reflect.TypeFor[encoding.BinaryAppender]()):
		return binaryCodec{typ, true}, nil
	case reads && pointer.Implements(reflect.TypeFor[encoding.BinaryMarshaler]()):
		return binaryCodec{typ, false}, nil
	case typ.Kind() == reflect.String:
		return stringCodec{}, nil
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Uint8:
		return sliceCodec{}, nil
	}
	return nil, errors.New(typ.String() + ": " + errNotBytes.Error())
}

type binaryCodec struct {
	typ     reflect.Type
	appends bool
}

func (c binaryCodec) Append(dst []byte, value unsafe.Pointer) ([]byte, error) {
	v := reflect.NewAt(c.typ, value).Interface()
	if c.appends {
		return v.(encoding.BinaryAppender).AppendBinary(dst)
	}
	data, err := v.(encoding.BinaryMarshaler).MarshalBinary()
	return append(dst, data...), err
}

func (c binaryCodec) Decode(src []byte, value unsafe.Pointer) error {
	return reflect.NewAt(c.typ, value).Interface().(encoding.BinaryUnmarshaler).UnmarshalBinary(append([]byte(nil), src...))
}

type stringCodec struct{}

func (stringCodec) Append(dst []byte, value unsafe.Pointer) ([]byte, error) {
	return append(dst, *(*string)(value)...), nil
}

func (stringCodec) Decode(src []byte, value unsafe.Pointer) error {
	*(*string)(value) = string(src)
	return nil
}

type sliceCodec struct{}

func (sliceCodec) Append(dst []byte, value unsafe.Pointer) ([]byte, error) {
	return append(dst, *(*[]byte)(value)...), nil
}

func (sliceCodec) Decode(src []byte, value unsafe.Pointer) error {
	*(*[]byte)(value) = append([]byte(nil), src...)
	return nil
}
