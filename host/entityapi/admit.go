package entityapi

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// Types finds how the payloads of an entity type are encoded. It is called for
// every command.
type Types interface {
	// Encoding fails if the type is unknown, or if the node cannot decide yet.
	Encoding(ctx context.Context, entityType string) (request.Encoding, error)
}

// payloadGiven is a request's payload in the form that the caller sent.
type payloadGiven struct {
	Kind wire.PayloadKind
	JSON *structpb.Value
	Data []byte
}

// maxPayloadBytes limits a payload as the module gets it. The JSON text of a
// payload may have six times the bytes of the request, and a larger input could
// not be passed to the module.
var maxPayloadBytes = abi.DefaultLimits().RequestBytes

// admit validates the entity id and the payload of a request. It returns the
// form in which the reply is sent, and the payload as the module gets it.
func admit(ctx context.Context, types Types, id sharding.EntityID, p payloadGiven) (answer wire.PayloadKind, payload []byte, err error) {
	if err := id.Validate(); err != nil {
		return 0, nil, err
	}
	encoding, err := types.Encoding(ctx, id.Type)
	if err != nil {
		return 0, nil, err
	}
	switch p.Kind {
	case wire.JSONPayload:
		payload, err = codec.FromJSON(encoding, p.JSON)
	case wire.DataPayload:
		payload, err = codec.FromData(encoding, p.Data)
	default:
		payload = codec.Empty(encoding)
	}
	if err == nil && len(payload) > maxPayloadBytes {
		err = status.Argument(fmt.Sprintf("the module would get a payload of %d bytes, the limit is %d", len(payload), maxPayloadBytes))
	}
	return codec.AnswerKind(encoding, p.Kind), payload, err
}

// admitEncoded is Admit for a payload from a message of a stream, in which a
// JSON value is still encoded.
func admitEncoded(ctx context.Context, types Types, id sharding.EntityID, kind wire.PayloadKind, encoded []byte) (answer wire.PayloadKind, payload []byte, err error) {
	if kind != wire.JSONPayload {
		return admit(ctx, types, id, payloadGiven{Kind: kind, Data: encoded})
	}
	var v structpb.Value
	if err := proto.Unmarshal(encoded, &v); err != nil {
		return 0, nil, status.Argument("the JSON value cannot be decoded")
	}
	return admit(ctx, types, id, payloadGiven{Kind: kind, JSON: &v})
}

// expectation converts an optional expected sequence to the runtime's form.
func expectation(given bool, sequence uint64) (int64, error) {
	if !given {
		return request.NoExpectation, nil
	}
	if sequence > 1<<63-1 {
		return 0, status.Argument("the expected sequence exceeds 2^63-1")
	}
	return int64(sequence), nil
}
