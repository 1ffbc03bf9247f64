package abi

import "strconv"

// Kind is the first byte of a frame. Input and output kinds are numbered
// separately: the same number means different things in the two directions.
type Kind uint8

// Kinds of frames that the host writes. A guest skips unknown kinds.
const (
	InEntityID  Kind = 1  // load: UTF-8
	InSnapshot  Kind = 2  // load: state bytes
	InSequence  Kind = 3  // load, handle, query: u64
	InVersion   Kind = 4  // load, if the state's version is not the module's own: u64
	InName      Kind = 16 // handle, query: name of the command or query, UTF-8
	InPayload   Kind = 17 // handle, query: bytes
	InCommandID Kind = 18 // handle: UTF-8
	InNow       Kind = 19 // handle, query: i64 unix nanoseconds
	InSeed      Kind = 20 // handle: u64
	InSource    Kind = 21 // handle: see Source
	InDue       Kind = 22 // handle, from a timer: i64 unix nanoseconds
	InPrincipal Kind = 23 // handle, query, if the caller is known: see Principal
	InSettings  Kind = 24 // handle, query, if the type has settings: see Settings
	InToken     Kind = 25 // handle, if the command delivers an outcome: the token of the send, see Send
	InEvent     Kind = 32 // apply: see InputEvent
)

// Kinds of frames that a guest writes. A kind that is not listed is a fault.
const (
	OutEvent          Kind = 1  // handle: see Event
	OutReply          Kind = 2  // handle, query: bytes
	OutReject         Kind = 3  // handle, query: see Reject
	OutSend           Kind = 4  // handle: see Send
	OutSetTimer       Kind = 5  // handle: see Timer
	OutCancelTimer    Kind = 6  // handle: name
	OutPassivate      Kind = 7  // handle: empty
	OutTag            Kind = 8  // handle: UTF-8, for the previous event
	OutState          Kind = 9  // handle of a durable-state type: bytes
	OutDelete         Kind = 10 // handle: empty
	OutSendWithAnswer Kind = 11 // handle: see Send
	OutSetSchedule    Kind = 12 // handle: see Timer
	OutSendWithToken  Kind = 13 // handle: see Send
	OutProgress       Kind = 14 // handle of a workflow type: see Progress
)

// outputName returns the name of an output kind for error texts.
func (k Kind) outputName() string {
	switch k {
	case OutEvent:
		return "event"
	case OutReply:
		return "reply"
	case OutReject:
		return "reject"
	case OutSend:
		return "send"
	case OutSetTimer:
		return "set timer"
	case OutCancelTimer:
		return "cancel timer"
	case OutPassivate:
		return "passivate"
	case OutTag:
		return "tag"
	case OutState:
		return "state"
	case OutDelete:
		return "delete"
	case OutSendWithAnswer:
		return "send with answer"
	case OutSetSchedule:
		return "set schedule"
	case OutSendWithToken:
		return "send with token"
	case OutProgress:
		return "progress"
	}
	return "kind " + strconv.Itoa(int(k))
}

// RunEnded is the type of the event that ends a run. If an entity of a workflow
// type has this type as its last event, the compatibility check of a new module
// does not replay it.
const RunEnded = "ended"

// RunCheckpoint is the type of the event of a checkpoint of a run. If it is the
// last event of a command, a host may load the run from its payload instead of
// from the events up to it, with any module of the type.
const RunCheckpoint = "checkpointed"

// SourceKind is the kind of sender of a command.
type SourceKind uint8

// Sources of a command.
const (
	SourceClient SourceKind = 1
	SourceTimer  SourceKind = 2
	SourceEntity SourceKind = 3
)
