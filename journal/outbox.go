package journal

import (
	"encoding/binary"
	"fmt"
)

// OutboxOpKind is the kind of an OutboxOp.
type OutboxOpKind uint8

const (
	// OutboxAcknowledged removes a message because its destination has received
	// it. It is ignored if the message no longer exists.
	OutboxAcknowledged OutboxOpKind = 1
	// OutboxRefused consumes a message's number without running its command,
	// because the destination cannot run it. Like a record for a message, it
	// takes effect only if the number is the channel's next number.
	OutboxRefused OutboxOpKind = 2
	// OutboxDiscarded removes a dead letter on behalf of an operator. It is
	// ignored if the dead letter no longer exists.
	OutboxDiscarded OutboxOpKind = 3
	// OutboxGivenUp abandons a message whose destination type does not exist,
	// so that its shard is unknown. The rejection goes to the source as a
	// message to itself, or the message becomes a dead letter. The operation is
	// ignored if the message no longer exists.
	OutboxGivenUp OutboxOpKind = 4
	// OutboxSentAgain turns a dead letter without a number into a new message,
	// on behalf of an operator. It is ignored if the dead letter no longer
	// exists.
	OutboxSentAgain OutboxOpKind = 5
	// OutboxRefusedToken is OutboxRefused for a message with a token, which the
	// outcome or the dead letter keeps. From sharding.VersionMessageTokens on.
	OutboxRefusedToken OutboxOpKind = 6
)

// OutboxOp is one operation of an EntryOutbox entry.
type OutboxOp struct {
	Kind OutboxOpKind
	ID   ItemID // set for all kinds except refusals
	// For OutboxRefused and OutboxRefusedToken: the message, its destination, and the reason. If
	// OnReject is empty no reply is expected, and the message becomes a dead
	// letter; otherwise the rejection goes back to the source as that command.
	// OutboxGivenUp uses At, Code, Message and Answer.
	Source                    MessageSource
	Type, Entity              []byte
	At                        int64 // unix nanoseconds of the shard's log clock
	Command, OnReject, Answer []byte
	Code, Message, Payload    []byte
	Token                     []byte // only OutboxRefusedToken
}

// AppendOutboxOp appends one operation to the body of an outbox entry. Layout,
// little endian: kind u8; acknowledged, discarded and sent again: index u64,
// ordinal u32, item u16; given up: the same, at i64, code (len u8), message
// (len u16), answer (bytes32); refused: the source as in a source section
// (bytes32), type (len u8), id (len u16), at i64, command (len u8), command for
// rejection (len u8), code (len u8), message (len u16), answer (bytes32),
// payload (bytes32); refused with a token: the same, then token (len u8).
func AppendOutboxOp(dst []byte, p *OutboxOp) []byte {
	dst = append(dst, byte(p.Kind))
	if p.Kind != OutboxRefused && p.Kind != OutboxRefusedToken {
		dst = appendItemID(dst, p.ID)
		if p.Kind == OutboxGivenUp {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(p.At))
			dst = append16(append8(dst, string(p.Code)), string(p.Message))
			dst = append32(dst, p.Answer)
		}
		return dst
	}
	dst = append32(dst, AppendMessageSource(nil, &p.Source))
	dst = append8(dst, string(p.Type))
	dst = append16(dst, string(p.Entity))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(p.At))
	dst = append8(dst, string(p.Command))
	dst = append8(dst, string(p.OnReject))
	dst = append8(dst, string(p.Code))
	dst = append16(dst, string(p.Message))
	dst = append32(dst, p.Answer)
	dst = append32(dst, p.Payload)
	if p.Kind == OutboxRefusedToken {
		dst = append8(dst, string(p.Token))
	}
	return dst
}

// NextOutboxOp decodes the first operation of the body of an outbox entry,
// which must not be empty. All slices alias body.
func NextOutboxOp(body []byte) (p OutboxOp, rest []byte, err error) {
	d := decoder{b: body}
	switch p.Kind = OutboxOpKind(d.u8()); p.Kind {
	case OutboxAcknowledged, OutboxDiscarded, OutboxSentAgain:
		p.ID = d.itemID()
	case OutboxGivenUp:
		p.ID, p.At = d.itemID(), int64(d.u64())
		p.Code, p.Message = d.take(int(d.u8())), d.take(int(d.u16()))
		p.Answer = d.take(int(d.u32()))
	case OutboxRefused, OutboxRefusedToken:
		source := d.take(int(d.u32()))
		if d.bad {
			return p, nil, errRunsPast()
		}
		if p.Source, err = DecodeMessageSource(source); err != nil {
			return p, nil, err
		}
		p.Type, p.Entity, p.At = d.take(int(d.u8())), d.take(int(d.u16())), int64(d.u64())
		p.Command, p.OnReject = d.take(int(d.u8())), d.take(int(d.u8()))
		p.Code, p.Message = d.take(int(d.u8())), d.take(int(d.u16()))
		p.Answer, p.Payload = d.take(int(d.u32())), d.take(int(d.u32()))
		if p.Kind == OutboxRefusedToken {
			p.Token = d.take(int(d.u8()))
		}
	default:
		return p, nil, fmt.Errorf("%w: outbox operation %d", ErrUnsupported, p.Kind)
	}
	if d.bad {
		return p, nil, errRunsPast()
	}
	return p, d.b, nil
}
