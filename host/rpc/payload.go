package rpc

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/api/wire"
)

// What a module of a JSON type gets where the caller gave nothing: its input
// is always JSON text.
var null = []byte("null")

var (
	errNotJSON   = &argumentError{"data is not JSON text, and the entity type's encoding is json"}
	errJSONValue = &argumentError{"json was given, and the entity type's encoding is bytes: give data"}
)

// dataPayload checks a payload given as data and returns what the module gets,
// data itself where there is any.
func dataPayload(enc Encoding, data []byte) ([]byte, error) {
	if enc == Bytes {
		return data, nil
	}
	if len(data) == 0 {
		return null, nil
	}
	if !isJSON(data) {
		return nil, errNotJSON
	}
	return data, nil
}

// jsonPayload turns a payload given as a JSON value into what the module gets.
func jsonPayload(enc Encoding, v *structpb.Value) ([]byte, error) {
	if enc == Bytes {
		return nil, errJSONValue
	}
	return appendCanonical(make([]byte, 0, 64), v)
}

// emptyPayload is what the module gets when no payload was given.
func emptyPayload(enc Encoding) []byte {
	if enc == Bytes {
		return nil
	}
	return null
}

// answerKind is the form of an answer: that of the request's payload, or that
// of the type's encoding where the request had none.
func answerKind(enc Encoding, request wire.PayloadKind) wire.PayloadKind {
	switch {
	case enc == Bytes || request == wire.DataPayload:
		return wire.DataPayload
	default:
		return wire.JSONPayload
	}
}

// render splits an answer's bytes into the two forms it can have: a JSON
// value, or data. What is empty is neither. Text that should be JSON and is
// not stays data: the command it answers is durable, so failing would lie.
func render(kind wire.PayloadKind, payload []byte) (v *structpb.Value, data []byte) {
	if kind == wire.JSONPayload && len(payload) > 0 {
		if v, ok := parseJSON(payload); ok {
			return v, nil
		}
	}
	return nil, payload
}
