package codec

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/abi/jsontext"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
)

// What a module of a JSON type gets where the caller gave nothing: its input
// is always JSON text.
var null = []byte("null")

var errJSONValue = status.Argument("json was given, and the entity type's encoding is bytes: give data")

// FromData checks a payload given as data and returns what the module gets: for
// JSON types the canonical text of its value, which may be data itself.
func FromData(enc request.Encoding, data []byte) ([]byte, error) {
	if enc == request.Bytes {
		return data, nil
	}
	if len(data) == 0 {
		return null, nil
	}
	text, err := jsontext.Canonical(data)
	if err != nil {
		return nil, status.Argument("data is not JSON, which is the entity type's encoding: " + err.Error())
	}
	return text, nil
}

// FromJSON turns a payload given as a JSON value into what the module gets.
func FromJSON(enc request.Encoding, v *structpb.Value) ([]byte, error) {
	if enc == request.Bytes {
		return nil, errJSONValue
	}
	text, err := jsonvalue.Append(make([]byte, 0, 64), v)
	if err != nil {
		return nil, status.Argument(err.Error())
	}
	return text, nil
}

// Empty is what the module gets when no payload was given.
func Empty(enc request.Encoding) []byte {
	if enc == request.Bytes {
		return nil
	}
	return null
}

// AnswerKind is the form of an answer: that of the request's payload, or that
// of the type's encoding where the request had none.
func AnswerKind(enc request.Encoding, asked wire.PayloadKind) wire.PayloadKind {
	switch {
	case enc == request.Bytes || asked == wire.DataPayload:
		return wire.DataPayload
	default:
		return wire.JSONPayload
	}
}

// Render splits an answer's bytes into the two forms it can have: a JSON
// value, or data. What is empty is neither. Text that should be JSON and is
// not stays data: the command it answers is durable, so failing would lie.
func Render(kind wire.PayloadKind, payload []byte) (v *structpb.Value, data []byte) {
	if kind == wire.JSONPayload && len(payload) > 0 {
		if v, ok := jsonvalue.ParseAnswer(payload); ok {
			return v, nil
		}
	}
	return nil, payload
}
