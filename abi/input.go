package abi

import "encoding/binary"

// AppendEntityID appends an entity id frame.
func AppendEntityID[T string | []byte](dst []byte, id T) []byte {
	return AppendFrame(dst, InEntityID, id)
}

// AppendSnapshot appends a snapshot frame.
func AppendSnapshot(dst, state []byte) []byte { return AppendFrame(dst, InSnapshot, state) }

// AppendSequence appends a sequence frame: for load, the sequence of the
// snapshot; for handle and query, the entity's sequence before the call.
func AppendSequence(dst []byte, sequence uint64) []byte {
	return appendUint64(dst, InSequence, sequence)
}

// AppendStateVersion appends the version of the state in a snapshot frame, if
// it differs from the module's own version.
func AppendStateVersion(dst []byte, version uint64) []byte {
	return appendUint64(dst, InVersion, version)
}

// AppendName appends the name of a command or query.
func AppendName[T string | []byte](dst []byte, name T) []byte {
	return AppendFrame(dst, InName, name)
}

// AppendPayload appends the payload of a command or query.
func AppendPayload(dst, payload []byte) []byte { return AppendFrame(dst, InPayload, payload) }

// AppendCommandID appends a command id frame.
func AppendCommandID[T string | []byte](dst []byte, id T) []byte {
	return AppendFrame(dst, InCommandID, id)
}

// AppendNow appends the command's time in unix nanoseconds.
func AppendNow(dst []byte, unixNanos int64) []byte {
	return appendUint64(dst, InNow, uint64(unixNanos))
}

// AppendSeed appends the command's seed.
func AppendSeed(dst []byte, seed uint64) []byte { return appendUint64(dst, InSeed, seed) }

func appendUint64(dst []byte, kind Kind, value uint64) []byte {
	return binary.LittleEndian.AppendUint64(appendHeader(dst, kind, 8), value)
}

// DecodeUint64 decodes the body of a sequence or seed frame.
func DecodeUint64(body []byte) (uint64, error) {
	if len(body) != 8 {
		return 0, errNotEight
	}
	return binary.LittleEndian.Uint64(body), nil
}

// DecodeInt64 decodes the body of a now frame.
func DecodeInt64(body []byte) (int64, error) {
	value, err := DecodeUint64(body)
	return int64(value), err
}

// AppendDue appends the time at which the timer that sent a command was due, in
// unix nanoseconds.
func AppendDue(dst []byte, unixNanos int64) []byte {
	return appendUint64(dst, InDue, uint64(unixNanos))
}

// Source is the sender of a command. EntityType and EntityID are set if Kind is
// SourceEntity.
type Source struct {
	Kind       SourceKind
	EntityType []byte
	EntityID   []byte
}

// AppendSource appends a source frame.
func AppendSource(dst []byte, source Source) []byte {
	if source.Kind != SourceEntity {
		return append(appendHeader(dst, InSource, 1), byte(source.Kind))
	}
	dst = appendHeader(dst, InSource, 1+fieldBytes(len(source.EntityType))+fieldBytes(len(source.EntityID)))
	dst = append(dst, byte(source.Kind))
	dst = AppendField(dst, source.EntityType)
	return AppendField(dst, source.EntityID)
}

// DecodeSource decodes the body of a source frame.
func DecodeSource(body []byte) (Source, error) {
	if len(body) == 0 {
		return Source{}, errShort
	}
	source := Source{Kind: SourceKind(body[0])}
	rest := body[1:]
	switch source.Kind {
	case SourceClient, SourceTimer:
	case SourceEntity:
		var ok bool
		if source.EntityType, rest, ok = cutField(rest); !ok {
			return Source{}, errShort
		}
		if source.EntityID, rest, ok = cutField(rest); !ok {
			return Source{}, errShort
		}
	default:
		return Source{}, errSource
	}
	if len(rest) != 0 {
		return Source{}, errTrailing
	}
	return source, nil
}

// AppendToken appends the token of the send whose outcome the command delivers.
func AppendToken(dst, token []byte) []byte { return AppendFrame(dst, InToken, token) }

// InputEvent is an event of the entity's history, as hostd_apply receives it.
type InputEvent struct {
	Sequence   uint64
	RecordedAt int64 // unix nanoseconds
	Type       []byte
	Payload    []byte
}

// InputEventBytes returns the size of the frame that AppendInputEvent appends
// for a type and payload of these sizes. The limit of a batch counts these
// sizes.
func InputEventBytes(typeBytes, payloadBytes int) int {
	return HeaderBytes + 16 + fieldBytes(typeBytes) + payloadBytes
}

// AppendInputEvent appends an event frame for hostd_apply.
func AppendInputEvent[T string | []byte](dst []byte, sequence uint64, recordedAt int64, eventType T, payload []byte) []byte {
	dst = appendHeader(dst, InEvent, 16+fieldBytes(len(eventType))+len(payload))
	dst = binary.LittleEndian.AppendUint64(dst, sequence)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(recordedAt))
	dst = AppendField(dst, eventType)
	return append(dst, payload...)
}

// DecodeInputEvent decodes the body of an event frame of hostd_apply. Type and
// Payload are sub-slices of body.
func DecodeInputEvent(body []byte) (InputEvent, error) {
	if len(body) < 16 {
		return InputEvent{}, errShort
	}
	event := InputEvent{
		Sequence:   binary.LittleEndian.Uint64(body),
		RecordedAt: int64(binary.LittleEndian.Uint64(body[8:])),
	}
	var ok bool
	if event.Type, event.Payload, ok = cutField(body[16:]); !ok {
		return InputEvent{}, errShort
	}
	return event, nil
}

// Request is the decoded input of one hostd_load, hostd_handle or hostd_query.
// Slices are sub-slices of the input. A field whose frame is missing has its
// zero value. Only Snapshot distinguishes a missing frame, which is nil, from
// an empty frame.
type Request struct {
	EntityID []byte
	Snapshot []byte
	Sequence uint64
	// StateVersion is the version of Snapshot; 0 means the module's own.
	StateVersion uint64
	Name         []byte
	Payload      []byte
	CommandID    []byte
	Now          int64 // unix nanoseconds
	Seed         uint64
	Source       Source
	Due          int64 // unix nanoseconds; 0 if no timer sent the command
	// Token is the token of the send whose outcome the command delivers; nil if
	// there is none.
	Token []byte
	// Principal is the caller, for DecodePrincipal; nil if it is unknown.
	Principal []byte
	// Settings are the values that operators have set for the type, encoded as the
	// function Settings reads them; nil if there are none.
	Settings []byte
}

// ParseRequest decodes input into request, which it resets first. It skips
// unknown kinds; if a kind occurs twice, the last value counts. The error is a
// *FrameError.
//
// It does the work of a Reader in one function, because it runs for each
// command, and inside a guest a function call costs more than decoding a frame.
func ParseRequest(request *Request, input []byte) error {
	*request = Request{}
	for index, offset := 0, 0; offset < len(input); index++ {
		rest := input[offset:]
		if len(rest) < HeaderBytes {
			return requestFault(index, offset, 0, "header is cut off")
		}
		kind := Kind(rest[0])
		end := HeaderBytes + uint64(binary.LittleEndian.Uint32(rest[1:]))
		if end > uint64(len(rest)) {
			return requestFault(index, offset, kind, "body is cut off")
		}
		body := rest[HeaderBytes:end:end]
		switch kind {
		case InSequence, InNow, InSeed, InDue, InVersion:
			if len(body) != 8 {
				return requestFault(index, offset, kind, errNotEight.reason)
			}
			switch value := binary.LittleEndian.Uint64(body); kind {
			case InSequence:
				request.Sequence = value
			case InNow:
				request.Now = int64(value)
			case InDue:
				request.Due = int64(value)
			case InVersion:
				request.StateVersion = value
			default:
				request.Seed = value
			}
		case InName:
			request.Name = body
		case InPayload:
			request.Payload = body
		case InCommandID:
			request.CommandID = body
		case InSource:
			if len(body) == 1 && (body[0] == byte(SourceClient) || body[0] == byte(SourceTimer)) {
				request.Source.Kind = SourceKind(body[0])
				break
			}
			source, err := DecodeSource(body)
			if err != nil {
				return requestFault(index, offset, kind, reasonOf(err))
			}
			request.Source = source
		case InPrincipal:
			request.Principal = body
		case InSettings:
			request.Settings = body
		case InToken:
			request.Token = body
		case InEntityID:
			request.EntityID = body
		case InSnapshot:
			request.Snapshot = body
		}
		offset += int(end)
	}
	return nil
}

func requestFault(index, offset int, kind Kind, reason string) error {
	return &FrameError{Index: index, Offset: offset, Kind: kind, Reason: reason, Cause: ErrMalformed, input: true}
}
