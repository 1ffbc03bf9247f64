package forward

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// errMalformed is wrapped by every decoding error.
var errMalformed = errors.New("malformed message")

// wireRequest is one request on the wire. After decoding, its slices alias the
// message.
type wireRequest struct {
	correlation uint64
	kind        uint64
	entityType  []byte
	entityID    []byte
	name        []byte
	payload     []byte
	commandID   []byte
	serverID    bool
	expected    uint64 // the expected sequence plus 1; 0 is none
	remaining   uint64 // microseconds to the deadline; 0 is none
	round       uint64
	send        []byte // encoded delivery
	shard       uint64 // according to the sender; 0 from a release that does not send it
	firstTried  uint64 // microseconds since the first attempt; 0 if no earlier attempt can have taken effect
	principal   []byte // encoded; empty if the sender did not send it
	roles       uint64 // revision of the roles that allowed the request at the sender
	trace       []byte // encoded; empty if the request is not sampled
}

// wireResult is one outcome on the wire. After decoding, its slices alias the
// message.
type wireResult struct {
	correlation uint64
	payload     []byte
	sequence    uint64
	events      uint64
	duplicate   bool
	failure     []byte // an encoded error, if failed
	failed      bool
	fuel        uint64
}

// Tags of fields: the field number of the .proto file shifted left by 3, plus
// the wire type, which is 2 for length-delimited and 0 for varint fields.
const (
	tagItem        = 1<<3 | 2
	tagCorrelation = 1 << 3

	tagKind       = 2 << 3
	tagEntityType = 3<<3 | 2
	tagEntityID   = 4<<3 | 2
	tagName       = 5<<3 | 2
	tagAskPayload = 6<<3 | 2
	tagCommandID  = 7<<3 | 2
	tagServerID   = 8 << 3
	tagExpected   = 9 << 3
	tagRemaining  = 10 << 3
	tagRound      = 11 << 3
	tagShard      = 12 << 3
	tagSend       = 13<<3 | 2
	tagFirstTried = 14 << 3
	tagPrincipal  = 15<<3 | 2
	tagRoles      = 16 << 3
	tagTrace      = 17<<3 | 2

	tagPayload   = 2<<3 | 2
	tagSequence  = 3 << 3
	tagEvents    = 4 << 3
	tagDuplicate = 5 << 3
	tagError     = 6<<3 | 2
	tagFuel      = 7 << 3
)

// fields calls fn for every field of an encoded message, in order: varints as
// n, length-delimited fields as b, which aliases msg. Fields of other types are
// skipped.
func fields(msg []byte, fn func(tag, n uint64, b []byte) error) error {
	for len(msg) > 0 {
		tag, used := protowire.ConsumeVarint(msg)
		if used < 0 || tag>>3 == 0 || tag>>32 != 0 {
			return fmt.Errorf("%w: invalid field tag", errMalformed)
		}
		msg = msg[used:]
		var n uint64
		var b []byte
		switch tag & 7 {
		case 0:
			n, used = protowire.ConsumeVarint(msg)
		case 2:
			b, used = protowire.ConsumeBytes(msg)
		default:
			if used = protowire.ConsumeFieldValue(protowire.Number(tag>>3), protowire.Type(tag&7), msg); used >= 0 {
				msg = msg[used:]
				continue
			}
		}
		if used < 0 {
			return fmt.Errorf("%w: a field runs past its message", errMalformed)
		}
		msg = msg[used:]
		if err := fn(tag, n, b); err != nil {
			return err
		}
	}
	return nil
}

// items calls fn for every item of a message.
func items(msg []byte, fn func(item []byte) error) error {
	return fields(msg, func(tag, _ uint64, b []byte) error {
		if tag != tagItem {
			return nil
		}
		return fn(b)
	})
}

func (a *wireRequest) parse(item []byte) error {
	*a = wireRequest{}
	return fields(item, func(tag, n uint64, b []byte) error {
		switch tag {
		case tagCorrelation:
			a.correlation = n
		case tagKind:
			a.kind = n
		case tagEntityType:
			a.entityType = b
		case tagEntityID:
			a.entityID = b
		case tagName:
			a.name = b
		case tagAskPayload:
			a.payload = b
		case tagCommandID:
			a.commandID = b
		case tagServerID:
			a.serverID = n != 0
		case tagExpected:
			a.expected = n
		case tagRemaining:
			a.remaining = n
		case tagRound:
			a.round = n
		case tagSend:
			a.send = b
		case tagShard:
			a.shard = n
		case tagFirstTried:
			a.firstTried = n
		case tagPrincipal:
			a.principal = b
		case tagRoles:
			a.roles = n
		case tagTrace:
			a.trace = b
		}
		return nil
	})
}

func (a *wireResult) parse(item []byte) error {
	*a = wireResult{}
	return fields(item, func(tag, n uint64, b []byte) error {
		switch tag {
		case tagCorrelation:
			a.correlation = n
		case tagPayload:
			a.payload = b
		case tagSequence:
			a.sequence = n
		case tagEvents:
			a.events = n
		case tagDuplicate:
			a.duplicate = n != 0
		case tagError:
			a.failure, a.failed = b, true
		case tagFuel:
			a.fuel = n
		}
		return nil
	})
}

func varintSize(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(v)
}

func bytesSize(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(n)
}

func appendVarint(dst []byte, tag byte, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(append(dst, tag), v)
}

// farSize is varintSize for a field whose tag has two bytes.
func farSize(v uint64) int {
	if v == 0 {
		return 0
	}
	return 2 + protowire.SizeVarint(v)
}

// farBytesSize is bytesSize for a field whose tag has two bytes.
func farBytesSize(n int) int {
	if n == 0 {
		return 0
	}
	return 2 + protowire.SizeBytes(n)
}

// appendFar is appendVarint for a field whose tag has more than one byte.
func appendFar(dst []byte, tag, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendVarint(dst, tag), v)
}

// appendFarBytes is appendBytes for a field whose tag has two bytes.
func appendFarBytes(dst []byte, tag uint64, v []byte) []byte {
	if len(v) == 0 {
		return dst
	}
	return append(protowire.AppendVarint(protowire.AppendVarint(dst, tag), uint64(len(v))), v...)
}

func appendBytes[T string | []byte](dst []byte, tag byte, v T) []byte {
	if len(v) == 0 {
		return dst
	}
	return append(protowire.AppendVarint(append(dst, tag), uint64(len(v))), v...)
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
