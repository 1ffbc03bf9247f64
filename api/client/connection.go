package client

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/wire"
)

const (
	// maxMessageItems and maxMessageBytes are where a message of commands is
	// cut, below the server's limits.
	maxMessageItems = 512
	maxMessageBytes = 128 << 10
)

type bidi = connect.BidiStreamForClient[wire.Message, wire.Message]

// connection carries commands over one connection until it breaks, or until
// the stream is closed and drained, which is no error. It reports whether any
// answer came.
func (s *Stream) connection(ctx context.Context, n *node) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn := n.stream.CallBidiStream(ctx)
	s.mu.Lock()
	s.unsent = s.list.first // all of it goes over this connection
	for p := s.list.first; p != nil; p = p.next {
		p.carried, p.sent = p.carried || p.sent, false
	}
	s.mu.Unlock()

	received := make(chan error, 1)
	go func() {
		var err error
		answered, err = s.receive(conn)
		received <- err
	}()
	ended, sendErr := s.transmit(conn, received)
	if ended {
		err, sendErr = sendErr, nil
	} else {
		switch {
		case sendErr == nil:
			conn.CloseRequest() // drained: the server ends its side
		case !errors.Is(sendErr, io.EOF):
			cancel()
		} // else the server has ended the stream, and the receiver learns why
		err = <-received
	}
	cancel()
	conn.CloseResponse()
	if errors.Is(err, io.EOF) && sendErr == nil {
		return answered, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = sendErr
	}
	return answered, err
}

// transmit sends commands until the stream is drained, sending fails, or the
// receiver ends, and then err is the receiver's.
func (s *Stream) transmit(conn *bidi, received <-chan error) (ended bool, err error) {
	var out wire.Message
	signal(s.wake) // what was left by the connection before
	for {
		select {
		case <-s.wake:
		case err := <-received:
			return true, err
		}
		for {
			out.Bytes = s.fill(out.Bytes[:0])
			if len(out.Bytes) == 0 {
				break
			}
			if err := conn.Send(&out); err != nil {
				return false, err
			}
		}
		if s.drained() {
			return false, nil
		}
	}
}

// fill encodes commands that this connection has not carried.
func (s *Stream) fill(dst []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; s.unsent != nil && n < maxMessageItems; n++ {
		p := s.unsent
		o := wire.Outgoing{
			EntityType: p.cmd.EntityType, EntityID: p.cmd.EntityID, Name: p.cmd.Name,
			Data: p.cmd.Data, CommandID: p.cmd.ID,
		}
		if p.cmd.ExpectedSequence != nil {
			o.Expected, o.HasExpected = *p.cmd.ExpectedSequence, true
		}
		if len(dst) > 0 && len(dst)+o.Size() > maxMessageBytes {
			break
		}
		dst = wire.AppendCommand(dst, p.correlation(), &o)
		p.sent = true
		s.unsent = p.next
	}
	return dst
}

// receive dispatches answers until the connection ends.
func (s *Stream) receive(conn *bidi) (answered bool, err error) {
	in, err := conn.Conn()
	if err != nil {
		return false, err
	}
	var m wire.Message
	var nodeID string
	for {
		m.Bytes = m.Bytes[:0] // an empty message is not decoded at all
		if err := in.Receive(&m); err != nil {
			return answered, err
		}
		err := wire.ParseResponse(m.Bytes, func(a *wire.Answer) error {
			answered = true
			s.answer(a, &nodeID)
			return nil
		})
		if err != nil {
			return answered, err
		}
	}
}

// answer gives an answer to the command it belongs to. nodeID is the name in
// the answer before.
func (s *Stream) answer(a *wire.Answer, nodeID *string) {
	index, generation := uint32(a.Correlation), uint32(a.Correlation>>32)
	if int(index) >= len(s.slots) {
		return
	}
	p := &s.slots[index]
	s.mu.Lock()
	if p.generation != generation || p.done == nil {
		s.mu.Unlock()
		return
	}
	carried := p.carried
	done := s.finish(p)
	s.mu.Unlock()
	if len(a.Code) > 0 {
		err := answerError(a)
		if carried && !settled(CodeOf(err)) {
			err = unsettled(err)
		}
		done(Reply{}, err)
	} else {
		if string(a.NodeID) != *nodeID {
			*nodeID = string(a.NodeID)
		}
		done(Reply{
			Data:       answerData(a),
			Sequence:   a.Sequence,
			EventCount: int(a.EventCount),
			Duplicate:  a.Duplicate,
			NodeID:     *nodeID,
		}, nil)
	}
	s.free <- p
}

func answerData(a *wire.Answer) []byte {
	if a.Kind != wire.JSONPayload {
		return a.Payload
	}
	var v structpb.Value
	if proto.Unmarshal(a.Payload, &v) != nil {
		return nil
	}
	return payload(nil, &v)
}

func answerError(a *wire.Answer) error {
	for _, d := range a.Details {
		var packed anypb.Any
		if proto.Unmarshal(d, &packed) != nil {
			continue
		}
		var rejection entityv1.Rejection
		if packed.UnmarshalTo(&rejection) == nil {
			return &RejectedError{Code: rejection.GetCode(), Message: rejection.GetMessage()}
		}
		var mismatch entityv1.SequenceMismatch
		if packed.UnmarshalTo(&mismatch) == nil {
			return &SequenceMismatchError{Actual: mismatch.GetActual()}
		}
	}
	var code connect.Code
	if code.UnmarshalText(a.Code) != nil {
		code = connect.CodeUnknown
	}
	return &Error{Code: code, Message: string(a.Message)}
}
