package abi

import (
	"bytes"
	"unicode/utf8"
)

// Mode determines which output kinds a call may return.
type Mode uint8

// Modes of ParseOutput.
const (
	HandleEvents Mode = 1 // hostd_handle of an event-sourced type: all except state
	HandleState  Mode = 2 // hostd_handle of a durable-state type: all except event and tag
	QueryOnly    Mode = 3 // hostd_query: reply or reject
	// HandleTransient is hostd_handle of a transient type: reply, reject or
	// passivate.
	HandleTransient Mode = 4
)

// Output is the decoded output of a guest call. Slices point into the frames
// passed to ParseOutput, which reuses the memory of Output's lists in its next
// call with the same Output. If Rejected is set, nothing else may take effect.
type Output struct {
	Events    []Event
	Reply     []byte // empty if there is no reply frame
	Rejected  bool
	Reject    Reject
	Sends     []Send  // in the order emitted
	Timers    []Timer // timers set and cancelled, in the order emitted
	State     []byte
	HasState  bool // durable-state: there was a state frame, even if it was empty
	Passivate bool
	Delete    bool
	Progress  Progress // progress of a run; its Waits are limited to the number and size that the host keeps

	tags     [][]byte
	tagStart int
	hasReply bool
	progress bool // there was a progress frame
}

// Reset empties the output and keeps its memory.
func (o *Output) Reset() {
	*o = Output{Events: o.Events[:0], Sends: o.Sends[:0], Timers: o.Timers[:0], tags: o.tags[:0], Progress: Progress{Waits: o.Progress.Waits[:0]}}
}

// ParseOutput decodes the output frames of one call into out, which it resets
// first, and checks every limit. It allocates only when out's slices grow. The
// error is a *FrameError for the first fault; out is then invalid.
func ParseOutput(out *Output, frames []byte, mode Mode, limits *Limits) error {
	out.Reset()
	if len(frames) > limits.OutputBytes {
		return &FrameError{Reason: "output", Got: int64(len(frames)), Limit: int64(limits.OutputBytes), Cause: ErrOverLimit}
	}
	p := parser{Output: out, limits: limits, mode: mode, reader: NewReader(frames)}
	for {
		p.offset = p.reader.offset
		frame, ok, err := p.reader.Next()
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		p.kind = frame.Kind
		if err := p.take(frame); err != nil {
			return err
		}
	}
}

// parser is the state of one ParseOutput call.
type parser struct {
	*Output
	limits     *Limits
	mode       Mode
	reader     Reader
	offset     int
	kind       Kind
	eventBytes int
	sendBytes  int
	sends      int
	timers     int
}

func (p *parser) take(frame Frame) error {
	if !p.mode.allows(frame.Kind) {
		if frame.Kind == 0 || frame.Kind > OutProgress {
			return p.malformedError("unknown output kind")
		}
		return p.malformedError("this kind is not allowed here")
	}
	switch frame.Kind {
	case OutEvent:
		return p.event(frame.Body)
	case OutTag:
		return p.tag(frame.Body)
	case OutReply:
		return p.reply(frame.Body)
	case OutReject:
		return p.reject(frame.Body)
	case OutSend, OutSendWithAnswer, OutSendWithToken:
		return p.send(frame)
	case OutSetTimer, OutCancelTimer, OutSetSchedule:
		return p.timer(frame)
	case OutState:
		return p.state(frame.Body)
	case OutProgress:
		return p.takeProgress(frame.Body)
	case OutPassivate:
		p.Passivate = true
		return p.empty(frame.Body)
	default: // OutDelete, because allows rejects all other kinds
		p.Delete = true
		return p.empty(frame.Body)
	}
}

func (m Mode) allows(kind Kind) bool {
	switch kind {
	case OutReply, OutReject:
		return true
	case OutEvent, OutTag, OutProgress:
		return m == HandleEvents
	case OutState:
		return m == HandleState
	case OutPassivate:
		return m != QueryOnly
	case OutSend, OutSendWithAnswer, OutSendWithToken, OutSetTimer, OutCancelTimer, OutSetSchedule, OutDelete:
		return m == HandleEvents || m == HandleState
	}
	return false
}

func (p *parser) event(body []byte) error {
	event, err := DecodeEvent(body)
	if err != nil {
		return p.malformedError(reasonOf(err))
	}
	if err := p.name("event type", event.Type); err != nil {
		return err
	}
	if len(event.Payload) > p.limits.EventBytes {
		return p.over("event payload bytes", len(event.Payload), p.limits.EventBytes)
	}
	if len(p.Events) == p.limits.CommandEvents {
		return p.over("events of one command", len(p.Events)+1, p.limits.CommandEvents)
	}
	p.Events = append(p.Events, event)
	p.tagStart = len(p.tags)
	return p.countEventBytes(len(body))
}

func (p *parser) tag(tag []byte) error {
	if len(p.Events) == 0 {
		return p.malformedError("no event before it")
	}
	if err := p.name("tag", tag); err != nil {
		return err
	}
	if count := len(p.tags) - p.tagStart + 1; count > p.limits.EventTags {
		return p.over("tags of one event", count, p.limits.EventTags)
	}
	p.tags = append(p.tags, tag)
	p.Events[len(p.Events)-1].Tags = p.tags[p.tagStart:len(p.tags):len(p.tags)]
	return p.countEventBytes(len(tag))
}

func (p *parser) countEventBytes(n int) error {
	p.eventBytes += n
	if p.eventBytes > p.limits.CommandEventBytes {
		return p.over("event bytes of one command", p.eventBytes, p.limits.CommandEventBytes)
	}
	return nil
}

func (p *parser) reply(payload []byte) error {
	if p.hasReply {
		return p.malformedError("second reply")
	}
	if len(payload) > p.limits.ReplyBytes {
		return p.over("reply bytes", len(payload), p.limits.ReplyBytes)
	}
	p.hasReply = true
	p.Reply = payload
	return nil
}

func (p *parser) reject(body []byte) error {
	if p.Rejected {
		return p.malformedError("second reject")
	}
	reject, err := DecodeReject(body)
	if err != nil {
		return p.malformedError(reasonOf(err))
	}
	if err := p.name("code", reject.Code); err != nil {
		return err
	}
	reject.Message = displayText(reject.Message, p.limits.MessageBytes)
	p.Rejected = true
	p.Reject = reject
	return nil
}

// displayText returns a text that is only shown to people as valid UTF-8 of at
// most limit bytes. An invalid text must not fail a command.
func displayText(text []byte, limit int) []byte {
	if len(text) > limit {
		at := limit
		for at > 0 && at > limit-utf8.UTFMax && !utf8.RuneStart(text[at]) {
			at--
		}
		text = text[:at]
	}
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("?"))
	}
	return text
}

func (p *parser) state(payload []byte) error {
	if p.HasState {
		return p.malformedError("second state")
	}
	if len(payload) > p.limits.SnapshotBytes {
		return p.over("state bytes", len(payload), p.limits.SnapshotBytes)
	}
	p.HasState = true
	p.State = payload
	return nil
}

func (p *parser) send(frame Frame) (err error) {
	var send Send
	switch frame.Kind {
	case OutSend:
		send, err = DecodeSend(frame.Body)
	case OutSendWithAnswer:
		send, err = DecodeSendWithAnswer(frame.Body)
	default:
		send, err = DecodeSendWithToken(frame.Body)
	}
	if err != nil {
		return p.malformedError(reasonOf(err))
	}
	if len(send.EntityType) > MaxEntityTypeBytes {
		return p.over("entity type bytes", len(send.EntityType), MaxEntityTypeBytes)
	}
	if reason := entityTypeFault(send.EntityType); reason != "" {
		return p.invalid("entity type: " + reason)
	}
	if len(send.EntityID) > MaxEntityIDBytes {
		return p.over("entity id bytes", len(send.EntityID), MaxEntityIDBytes)
	}
	if reason := textFault(send.EntityID, MaxEntityIDBytes); reason != "" {
		return p.invalid("entity id: " + reason)
	}
	if err := p.name("command", send.Command); err != nil {
		return err
	}
	if send.WantsAnswer {
		if err := p.name("command for success", send.OnReply); err != nil {
			return err
		}
		if err := p.name("command for rejection", send.OnReject); err != nil {
			return err
		}
	}
	if frame.Kind == OutSendWithToken && len(send.Token) == 0 {
		return p.malformedError("token is empty")
	}
	if len(send.Token) > MaxTokenBytes {
		return p.over("token bytes", len(send.Token), MaxTokenBytes)
	}
	if p.sends++; p.sends > p.limits.CommandSends {
		return p.over("sends of one command", p.sends, p.limits.CommandSends)
	}
	p.Sends = append(p.Sends, send)
	return p.countSendBytes(len(send.Payload), len(frame.Body))
}

func (p *parser) timer(frame Frame) error {
	timer := Timer{Name: frame.Body, Cancel: true}
	if frame.Kind != OutCancelTimer {
		var err error
		if frame.Kind == OutSetTimer {
			timer, err = DecodeSetTimer(frame.Body)
		} else {
			timer, err = DecodeSetSchedule(frame.Body)
		}
		if err != nil {
			return p.malformedError(reasonOf(err))
		}
		if frame.Kind == OutSetSchedule {
			if err := p.schedule(&timer); err != nil {
				return err
			}
		}
		if err := p.name("command", timer.Command); err != nil {
			return err
		}
	}
	if err := p.name("timer", timer.Name); err != nil {
		return err
	}
	if timer.Due < 0 {
		return p.invalid("timer is due before 1970 or out of range: " + string(timer.Name))
	}
	if p.timers++; p.timers > p.limits.CommandTimers {
		return p.over("timers of one command", p.timers, p.limits.CommandTimers)
	}
	p.Timers = append(p.Timers, timer)
	return p.countSendBytes(len(timer.Payload), len(frame.Body))
}

func (p *parser) countSendBytes(payload, body int) error {
	if payload > p.limits.EventBytes {
		return p.over("payload bytes", payload, p.limits.EventBytes)
	}
	p.sendBytes += body
	if p.sendBytes > p.limits.CommandSendBytes {
		return p.over("send and timer bytes of one command", p.sendBytes, p.limits.CommandSendBytes)
	}
	return nil
}

// takeProgress reads the progress of a run. Its texts are only shown to people,
// so texts that are too long are truncated, and texts beyond the maximum number
// are dropped.
func (p *parser) takeProgress(body []byte) error {
	if p.progress {
		return p.malformedError("second progress")
	}
	p.progress = true
	progress, err := decodeProgress(p.Progress.Waits, body)
	if err != nil {
		return p.malformedError(reasonOf(err))
	}
	p.Progress = progress
	return nil
}

func (p *parser) empty(body []byte) error {
	if len(body) != 0 {
		return p.malformedError("body is not empty")
	}
	return nil
}

// name checks a name. noun is the kind of name for the error text, and must be
// a constant.
func (p *parser) name(noun string, name []byte) error {
	if len(name) > p.limits.NameBytes {
		return p.over(noun+" bytes", len(name), p.limits.NameBytes)
	}
	if reason := textFault(name, p.limits.NameBytes); reason != "" {
		return p.invalid(noun + ": " + reason)
	}
	return nil
}

func (p *parser) malformedError(reason string) error {
	return &FrameError{Index: p.reader.index - 1, Offset: p.offset, Kind: p.kind, Reason: reason, Cause: ErrMalformed}
}

func (p *parser) invalid(reason string) error {
	return &FrameError{Index: p.reader.index - 1, Offset: p.offset, Kind: p.kind, Reason: reason, Cause: ErrInvalidValue}
}

func (p *parser) over(reason string, got, limit int) error {
	return &FrameError{Index: p.reader.index - 1, Offset: p.offset, Kind: p.kind, Reason: reason,
		Got: int64(got), Limit: int64(limit), Cause: ErrOverLimit}
}
