package abi

import "encoding/binary"

// Event is an event that a command emitted.
type Event struct {
	Type    []byte
	Payload []byte
	Tags    [][]byte // set by ParseOutput; valid until ParseOutput is called again with the same Output
}

// AppendEvent appends an event frame.
func AppendEvent[T string | []byte](dst []byte, eventType T, payload []byte) []byte {
	dst = appendHeader(dst, OutEvent, fieldBytes(len(eventType))+len(payload))
	return append(AppendField(dst, eventType), payload...)
}

// DecodeEvent decodes the body of an event frame.
func DecodeEvent(body []byte) (Event, error) {
	eventType, payload, ok := cutField(body)
	if !ok {
		return Event{}, errShort
	}
	return Event{Type: eventType, Payload: payload}, nil
}

// AppendTag appends a tag for the previous event.
func AppendTag[T string | []byte](dst []byte, tag T) []byte { return AppendFrame(dst, OutTag, tag) }

// AppendReply appends a reply frame.
func AppendReply(dst, payload []byte) []byte { return AppendFrame(dst, OutReply, payload) }

// AppendState appends the new state of a durable-state entity.
func AppendState(dst, state []byte) []byte { return AppendFrame(dst, OutState, state) }

// AppendPassivate appends a request to remove the entity from memory.
func AppendPassivate(dst []byte) []byte { return appendHeader(dst, OutPassivate, 0) }

// AppendDelete appends a tombstone.
func AppendDelete(dst []byte) []byte { return appendHeader(dst, OutDelete, 0) }

// Reject is a handler's rejection of a command or query.
type Reject struct {
	Code    []byte
	Message []byte
}

// Progress is the progress that a run, an entity of a workflow type, reports
// after a command: the number of its steps so far, and texts for people that
// name the events for which the run waits. ParseOutput keeps the first MaxWaits
// waits, and of each the first MaxWaitBytes bytes.
type Progress struct {
	Steps uint32
	Waits [][]byte
}

// AppendProgress appends a progress frame.
func AppendProgress(dst []byte, p Progress) []byte {
	dst, mark := BeginFrame(dst, OutProgress)
	dst = binary.LittleEndian.AppendUint32(dst, p.Steps)
	for _, w := range p.Waits {
		dst = AppendField(dst, w)
	}
	EndFrame(dst, mark)
	return dst
}

// decodeProgress decodes the body of a progress frame. It appends the waits to
// dst.
func decodeProgress(dst [][]byte, body []byte) (Progress, error) {
	if len(body) < 4 {
		return Progress{}, errShort
	}
	p := Progress{Steps: binary.LittleEndian.Uint32(body), Waits: dst}
	for rest := body[4:]; len(rest) > 0; {
		var wait []byte
		var ok bool
		if wait, rest, ok = cutField(rest); !ok {
			return Progress{}, errShort
		}
		if len(p.Waits) < MaxWaits {
			p.Waits = append(p.Waits, displayText(wait, MaxWaitBytes))
		}
	}
	return p, nil
}

// AppendReject appends a reject frame.
func AppendReject[T string | []byte](dst []byte, code, message T) []byte {
	dst = appendHeader(dst, OutReject, fieldBytes(len(code))+len(message))
	return append(AppendField(dst, code), message...)
}

// DecodeReject decodes the body of a reject frame.
func DecodeReject(body []byte) (Reject, error) {
	code, message, ok := cutField(body)
	if !ok {
		return Reject{}, errShort
	}
	return Reject{Code: code, Message: message}, nil
}

// Send is a command to another entity. If WantsAnswer is set, the outcome is
// sent back to the sender as its command OnReply, or as OnReject with {code,
// message} as JSON. Token, at most MaxTokenBytes, is returned unchanged with
// the outcome, so that the sender can distinguish outcomes of equal commands.
// The receiver does not see it.
type Send struct {
	EntityType  []byte
	EntityID    []byte
	Command     []byte
	Payload     []byte
	WantsAnswer bool
	OnReply     []byte
	OnReject    []byte
	Token       []byte // only if WantsAnswer; empty for none
}

// AppendSend appends a send frame, of kind OutSendWithAnswer if WantsAnswer is
// set, or OutSendWithToken if there is a token too.
func AppendSend(dst []byte, send Send) []byte {
	kind := OutSend
	switch {
	case send.WantsAnswer && len(send.Token) > 0:
		kind = OutSendWithToken
	case send.WantsAnswer:
		kind = OutSendWithAnswer
	}
	dst, mark := BeginFrame(dst, kind)
	dst = AppendField(dst, send.EntityType)
	dst = AppendField(dst, send.EntityID)
	dst = AppendField(dst, send.Command)
	if send.WantsAnswer {
		dst = AppendField(dst, send.OnReply)
		dst = AppendField(dst, send.OnReject)
	}
	if kind == OutSendWithToken {
		dst = AppendField(dst, send.Token)
	}
	dst = append(dst, send.Payload...)
	EndFrame(dst, mark)
	return dst
}

// DecodeSend decodes the body of a frame of kind OutSend.
func DecodeSend(body []byte) (Send, error) {
	send, rest, ok := cutTarget(body)
	if !ok {
		return Send{}, errShort
	}
	send.Payload = rest
	return send, nil
}

// DecodeSendWithAnswer decodes the body of a frame of kind OutSendWithAnswer.
func DecodeSendWithAnswer(body []byte) (Send, error) {
	send, rest, ok := cutTarget(body)
	if !ok {
		return Send{}, errShort
	}
	send.WantsAnswer = true
	if send.OnReply, rest, ok = cutField(rest); !ok {
		return Send{}, errShort
	}
	if send.OnReject, rest, ok = cutField(rest); !ok {
		return Send{}, errShort
	}
	send.Payload = rest
	return send, nil
}

// DecodeSendWithToken decodes the body of a frame of kind OutSendWithToken.
func DecodeSendWithToken(body []byte) (Send, error) {
	send, err := DecodeSendWithAnswer(body)
	if err != nil {
		return send, err
	}
	var ok bool
	if send.Token, send.Payload, ok = cutField(send.Payload); !ok {
		return Send{}, errShort
	}
	return send, nil
}

// cutTarget reads the three fields that all kinds of send begin with.
func cutTarget(body []byte) (send Send, rest []byte, ok bool) {
	if send.EntityType, rest, ok = cutField(body); !ok {
		return send, nil, false
	}
	if send.EntityID, rest, ok = cutField(rest); !ok {
		return send, nil, false
	}
	send.Command, rest, ok = cutField(rest)
	return send, rest, ok
}

// Timer is a named timer of an entity: at Due the entity receives Command with
// Payload. Setting a timer again replaces it. ParseOutput sets Cancel for the
// cancellation of Name; the other fields are then empty. A Timer with an
// Expression is a schedule: the host computes when it is due, and sets it again
// each time it has fired.
type Timer struct {
	Name    []byte
	Due     int64 // unix nanoseconds
	Command []byte
	Payload []byte
	Cancel  bool

	Expression []byte // for a schedule: five cron fields, or "@every" and a duration
	Zone       []byte // IANA name; empty means UTC
	Missed     Missed
}

// AppendSetTimer appends a set timer frame. It ignores timer.Cancel.
func AppendSetTimer(dst []byte, timer Timer) []byte {
	dst = appendHeader(dst, OutSetTimer,
		fieldBytes(len(timer.Name))+8+fieldBytes(len(timer.Command))+len(timer.Payload))
	dst = AppendField(dst, timer.Name)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(timer.Due))
	dst = AppendField(dst, timer.Command)
	return append(dst, timer.Payload...)
}

// DecodeSetTimer decodes the body of a set timer frame.
func DecodeSetTimer(body []byte) (Timer, error) {
	var timer Timer
	name, rest, ok := cutField(body)
	if !ok || len(rest) < 8 {
		return Timer{}, errShort
	}
	timer.Name = name
	timer.Due = int64(binary.LittleEndian.Uint64(rest))
	if timer.Command, timer.Payload, ok = cutField(rest[8:]); !ok {
		return Timer{}, errShort
	}
	return timer, nil
}

// AppendCancelTimer appends a cancel timer frame.
func AppendCancelTimer[T string | []byte](dst []byte, name T) []byte {
	return AppendFrame(dst, OutCancelTimer, name)
}
