package codec

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/abi/jsontext"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
)

// null is the input of a JSON type's module if the caller gave no payload,
// because the input of such a module is always JSON text.
var null = []byte("null")

var errJSONValue = status.Argument("json is set, but the entity type's encoding is bytes: set data instead")

// FromData checks a payload given as data and returns the module's input: for
// JSON types the canonical text of the value, which may share memory with data.
func FromData(enc request.Encoding, data []byte) ([]byte, error) {
	if enc == request.Bytes {
		return data, nil
	}
	if len(data) == 0 {
		return null, nil
	}
	text, err := jsontext.Canonical(data)
	if err != nil {
		return nil, status.Argument("data must be JSON, because that is the entity type's encoding: " + err.Error())
	}
	return text, nil
}

// FromJSON converts a payload given as a JSON value to the module's input.
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

// Empty returns the module's input if no payload was given.
func Empty(enc request.Encoding) []byte {
	if enc == request.Bytes {
		return nil
	}
	return null
}

// AnswerKind returns the form of a reply: the form of the request's payload, or
// that of the type's encoding if the request had no payload.
func AnswerKind(enc request.Encoding, asked wire.PayloadKind) wire.PayloadKind {
	switch {
	case enc == request.Bytes || asked == wire.DataPayload:
		return wire.DataPayload
	default:
		return wire.JSONPayload
	}
}

// Render returns a reply in one of its two forms: a JSON value, or data. For
// an empty reply it returns neither. Text that should be JSON but is not is
// returned as data, because the command is already durable, so an error
// would be misleading.
func Render(kind wire.PayloadKind, payload []byte) (v *structpb.Value, data []byte) {
	if kind == wire.JSONPayload && len(payload) > 0 {
		if v, ok := jsonvalue.ParseAnswer(payload); ok {
			return v, nil
		}
	}
	return nil, payload
}
