package journal

import (
	"encoding/binary"
	"fmt"
)

// OutboxOpKind says what a step of a outbox entry does.
type OutboxOpKind uint8

const (
	// OutboxAcknowledged ends a message: its destination has it. One that is not
	// there any more is passed over.
	OutboxAcknowledged OutboxOpKind = 1
	// OutboxRefused takes a message's number without its entity: what should carry
	// it out cannot. It takes effect only in its turn, like a record of that
	// number.
	OutboxRefused OutboxOpKind = 2
	// OutboxDiscarded ends a dead letter, in an operator's name. One that is not
	// there any more is passed over.
	OutboxDiscarded OutboxOpKind = 3
	// OutboxGivenUp ends a message whose destination's type does not exist, so
	// that nobody can say in which shard it would be. The refusal goes to the
	// source as a message to itself, or the message becomes a dead letter. One
	// that is not there any more is passed over.
	OutboxGivenUp OutboxOpKind = 4
	// OutboxSentAgain makes a dead letter without a number a new message, in an
	// operator's name. One that is not there any more is passed over.
	OutboxSentAgain OutboxOpKind = 5
)

// OutboxOp is a step of an entry of kind EntryOutbox.
type OutboxOp struct {
	Kind OutboxOpKind
	ID   ItemID // of all but a refusal
	// Of a refusal: the message, its destination, and why. OnReject is empty when
	// no answer is wanted: then it becomes a dead letter. Else the refusal goes
	// back to the source as that command. What is given up has At, Code, Message
	// and Answer of these.
	Source                    MessageSource
	Type, Entity              []byte
	At                        int64 // unix nanoseconds of the shard's log clock
	Command, OnReject, Answer []byte
	Code, Message, Payload    []byte
}

// AppendOutboxOp appends one step to the body of a outbox entry. Layout, little
// endian: kind u8; acknowledged, discarded and sent again: index u64, ordinal
// u32, item u16; given up: the same, at i64, code (len u8), message (len u16),
// answer (bytes32); refused: the source as in a source section (bytes32), type
// (len u8), id (len u16), at i64, command (len u8), command for rejection (len
// u8), code (len u8), message (len u16), answer (bytes32), payload (bytes32).
func AppendOutboxOp(dst []byte, p *OutboxOp) []byte {
	dst = append(dst, byte(p.Kind))
	if p.Kind != OutboxRefused {
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
	return append32(dst, p.Payload)
}

// NextOutboxOp takes the first step off the body of a outbox entry; it must not
// be empty. All slices alias body.
func NextOutboxOp(body []byte) (p OutboxOp, rest []byte, err error) {
	d := decoder{b: body}
	switch p.Kind = OutboxOpKind(d.u8()); p.Kind {
	case OutboxAcknowledged, OutboxDiscarded, OutboxSentAgain:
		p.ID = d.itemID()
	case OutboxGivenUp:
		p.ID, p.At = d.itemID(), int64(d.u64())
		p.Code, p.Message = d.take(int(d.u8())), d.take(int(d.u16()))
		p.Answer = d.take(int(d.u32()))
	case OutboxRefused:
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
	default:
		return p, nil, fmt.Errorf("%w: post step %d", ErrUnsupported, p.Kind)
	}
	if d.bad {
		return p, nil, errRunsPast()
	}
	return p, d.b, nil
}
