package codec

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/wire"
)

// Stream is a codec that lets SendCommandStream use JSON. It translates between JSON
// text and the binary messages that the stream works on. It is meant for people
// and browsers; the binary form is many times cheaper.
type Stream struct{ As string } // the name in the content type

func (c Stream) Name() string { return c.As }

func (c Stream) Marshal(msg any) ([]byte, error) {
	m, ok := msg.(*wire.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a stream message", msg)
	}
	var response entityv1.SendCommandStreamResponse
	if err := proto.Unmarshal(m.Bytes, &response); err != nil {
		return nil, err
	}
	return appendJSON(nil, &response)
}

func (c Stream) Unmarshal(data []byte, msg any) error {
	m, ok := msg.(*wire.Message)
	if !ok {
		return fmt.Errorf("%T is not a stream message", msg)
	}
	var request entityv1.SendCommandStreamRequest
	if err := unmarshalJSON(data, &request); err != nil {
		return err
	}
	var err error
	m.Bytes, err = proto.MarshalOptions{}.MarshalAppend(m.Bytes[:0], &request)
	return err
}
