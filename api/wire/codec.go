package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Message is an encoded message that a Codec passes through unchanged.
type Message struct{ Bytes []byte }

// Codec is a connect codec with the name "proto" that passes Messages through
// and treats every other type as a protobuf message.
type Codec struct{}

// Name returns "proto".
func (Codec) Name() string { return "proto" }

// Marshal returns the bytes of a message.
func (c Codec) Marshal(msg any) ([]byte, error) { return c.MarshalAppend(nil, msg) }

// MarshalAppend appends the bytes of a message to dst.
func (Codec) MarshalAppend(dst []byte, msg any) ([]byte, error) {
	switch m := msg.(type) {
	case *Message:
		return append(dst, m.Bytes...), nil
	case proto.Message:
		return proto.MarshalOptions{}.MarshalAppend(dst, m)
	}
	return nil, fmt.Errorf("%T is not a protobuf message", msg)
}

// Unmarshal decodes data into msg. For a Message it copies data, which the
// caller owns, and reuses the capacity of Bytes.
func (Codec) Unmarshal(data []byte, msg any) error {
	switch m := msg.(type) {
	case *Message:
		m.Bytes = append(m.Bytes[:0], data...)
		return nil
	case proto.Message:
		return proto.Unmarshal(data, m)
	}
	return fmt.Errorf("%T is not a protobuf message", msg)
}
