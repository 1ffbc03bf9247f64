package client

import (
	"context"
	"errors"
	"io"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/wire"
)

const (
	// maxMessageItems and maxMessageBytes limit a message of commands, to less
	// than the server's limits.
	maxMessageItems = 512
	maxMessageBytes = 128 << 10
)

type bidi = connect.BidiStreamForClient[wire.Message, wire.Message]

// nodeStream is the part of a stream that sends to one node. Its run goroutine
// connects when there are commands to send, and a second goroutine receives
// answers while there is a connection.
type nodeStream struct {
	s    *Stream
	n    *node
	wake chan struct{} // one slot: there are commands to send, or the stream ends

	// The stream's mutex guards these fields.
	list   pendingList // unanswered commands, in the order of arrival
	unsent *pending    // the first of list that this connection has not sent
}

// push appends a command. The caller holds the stream's mutex.
func (w *nodeStream) push(p *pending) {
	p.stream, p.sent = w, false
	w.list.push(p)
	if w.unsent == nil {
		w.unsent = p
		signal(w.wake)
	}
}

// remove removes a command. The caller holds the stream's mutex.
func (w *nodeStream) remove(p *pending) {
	if w.unsent == p {
		w.unsent = p.next
	}
	w.list.remove(p)
	p.stream = nil
}

// run connects whenever there is something to send.
func (w *nodeStream) run(ctx context.Context) {
	for {
		w.s.mu.Lock()
		work, ended := w.list.first != nil, w.s.ending
		w.s.mu.Unlock()
		if !work {
			if ended {
				return
			}
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		_, at := w.s.c.current()
		answered, err := w.connection(ctx)
		if err == nil && ctx.Err() == nil && w.s.isDrained() {
			return
		}
		w.s.broke(w, at, answered, err)
		if ctx.Err() != nil {
			return
		}
	}
}

// connection carries commands over one connection until it breaks, or until the
// stream is closed and drained, which is not an error. It reports whether any
// answer arrived.
func (w *nodeStream) connection(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn := w.n.stream.CallBidiStream(ctx)
	received := make(chan error, 1)
	go func() {
		var err error
		answered, err = w.receive(conn)
		received <- err
	}()
	ended, sendErr := w.transmit(ctx, conn, received)
	if ended {
		err, sendErr = sendErr, nil
	} else {
		switch {
		case sendErr == nil:
			conn.CloseRequest() // drained: the server ends its side
		case !errors.Is(sendErr, io.EOF):
			// Close the request too, because the transport checks the context only
			// once the request has ended.
			cancel()
			conn.CloseRequest()
		} // } // else the server has ended the stream, and the receiver gets the reason
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

// transmit sends commands until the stream is drained, sending fails, ctx ends,
// or the receiver ends. In the last case, it returns the receiver's error.
func (w *nodeStream) transmit(ctx context.Context, conn *bidi, received <-chan error) (ended bool, err error) {
	var out wire.Message
	signal(w.wake) // for commands queued before the connection existed
	for {
		select {
		case <-w.wake:
		case err := <-received:
			return true, err
		case <-ctx.Done():
			return false, ctx.Err()
		}
		for {
			out.Bytes = w.fill(out.Bytes[:0])
			if len(out.Bytes) == 0 {
				break
			}
			if err := conn.Send(&out); err != nil {
				return false, err
			}
		}
		if w.s.isDrained() {
			return false, nil
		}
	}
}

// fill encodes the commands that this connection has not sent.
func (w *nodeStream) fill(dst []byte) []byte {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.unsent == nil {
		return dst
	}
	now := time.Now()
	for n := 0; w.unsent != nil && n < maxMessageItems; n++ {
		p := w.unsent
		o := wire.Outgoing{
			EntityType: p.cmd.EntityType, EntityID: p.cmd.EntityID, Name: p.cmd.Name,
			Data: p.cmd.Data, CommandID: p.cmd.ID,
		}
		if p.cmd.ExpectedSequence != nil {
			o.Expected, o.HasExpected = *p.cmd.ExpectedSequence, true
		}
		first := p.cmd.FirstTried
		if p.carried && first.IsZero() {
			first = p.first
		}
		o.FirstAge = ageOf(first, now)
		if len(dst) > 0 && len(dst)+o.Size() > maxMessageBytes {
			break
		}
		if !p.carried {
			p.first = now
		}
		dst = wire.AppendCommand(dst, p.correlation(), &o)
		p.sent = true
		w.unsent = p.next
	}
	return dst
}

// receive dispatches answers until the connection ends.
func (w *nodeStream) receive(conn *bidi) (answered bool, err error) {
	in, err := conn.Conn()
	if err != nil {
		return false, err
	}
	var m wire.Message
	var nodeID string
	for {
		m.Bytes = m.Bytes[:0] // an empty message isn't decoded at all
		if err := in.Receive(&m); err != nil {
			return answered, err
		}
		err := wire.ParseResponse(m.Bytes, func(a *wire.Answer) error {
			answered = true
			if len(a.NodeID) > 0 && string(a.NodeID) != nodeID {
				nodeID = string(a.NodeID)
			}
			w.answer(a, nodeID)
			return nil
		})
		if err != nil {
			return answered, err
		}
	}
}

// answer passes an answer to its command, or sends the command again if it did
// not run.
func (w *nodeStream) answer(a *wire.Answer, nodeID string) {
	s := w.s
	index, generation := uint32(a.Correlation), uint32(a.Correlation>>32)
	if int(index) >= len(s.slots) {
		return
	}
	p := &s.slots[index]
	var err error
	if len(a.Code) > 0 {
		err = answerError(a)
	}
	s.mu.Lock()
	if p.generation != generation || p.stream != w || !p.sent {
		s.mu.Unlock()
		return
	}
	if err != nil && CodeOf(err) == connect.CodeUnavailable && !s.isEnding() {
		w.remove(p)
		p.sent = false
		p.route.cameBack(p, err, time.Now(), &s.c.opts)
		s.c.lostLeader(p.route.shard, w.n)
		s.mu.Unlock()
		signal(s.wake)
		return
	}
	carried := p.carried
	l := p.route
	l.overtakes(p)
	w.remove(p)
	look := err == nil && s.ranAt(p, w, nodeID)
	done := s.finish(p, err == nil)
	look = look || l.waiting()
	s.mu.Unlock()
	if look {
		signal(s.wake)
	}
	if err != nil {
		if carried && !settlesOutcome(CodeOf(err)) {
			err = unknownOutcome(err)
		}
		done(Reply{}, err)
	} else {
		done(Reply{
			Data:       answerData(a),
			Sequence:   a.Sequence,
			EventCount: int(a.EventCount),
			Duplicate:  a.Duplicate,
			NodeID:     nodeID,
			Fuel:       a.Fuel,
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
	var wait time.Duration
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
		var again errdetails.RetryInfo
		if packed.UnmarshalTo(&again) == nil {
			wait = again.GetRetryDelay().AsDuration()
		}
	}
	var code connect.Code
	if code.UnmarshalText(a.Code) != nil {
		code = connect.CodeUnknown
	}
	return &Error{Code: code, Message: string(a.Message), RetryAfter: wait}
}
