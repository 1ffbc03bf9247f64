package journal

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// A message is a command from one entity to another. It is part of the record
// of the command that sent it. When the record is applied, the message gets a
// number, counted from 1 per channel (source, destination). The message then
// waits in the source's shard until the destination's shard has a record or a
// rejection for that number.

// ItemID identifies a message or dead letter in its shard permanently: the
// entry and the record that created it, and its index in the record.
type ItemID struct {
	Index   uint64
	Ordinal uint32
	Item    uint16
}

// Less reports whether a was created before b.
func (a ItemID) Less(b ItemID) bool {
	if a.Index != b.Index {
		return a.Index < b.Index
	}
	return a.Ordinal < b.Ordinal || a.Ordinal == b.Ordinal && a.Item < b.Item
}

// MaxMessages bounds the messages of one record.
const MaxMessages = 1<<16 - 1

// MessageOp is a message in the record of the command that sent it.
type MessageOp struct {
	Type, ID, Command []byte // of the destination; no zero bytes
	// OnReply and OnReject are the source's commands that receive the outcome.
	// Both are empty if no reply is expected.
	OnReply, OnReject []byte
	Payload           []byte
	// Token is returned with the outcome; empty means none. AppendMessageOp does
	// not write the token, because tokens have their own section, see TokenOp.
	Token []byte
}

// WantsAnswer reports whether the sender expects a reply.
func (o *MessageOp) WantsAnswer() bool { return len(o.OnReply) > 0 }

// AppendMessageOp appends one message to the data of a messages section: type
// (len u8), id (len u16), command (len u8), command for success (len u8; 0: no
// reply is expected and the next field is absent), command for rejection (len
// u8), payload (len u32).
func AppendMessageOp(dst []byte, op *MessageOp) []byte {
	dst = append8(dst, string(op.Type))
	dst = append16(dst, string(op.ID))
	dst = append8(dst, string(op.Command))
	dst = append8(dst, string(op.OnReply))
	if op.WantsAnswer() {
		dst = append8(dst, string(op.OnReject))
	}
	return append32(dst, op.Payload)
}

// NextMessageOp decodes the first message of a messages section, which must not
// be empty. All slices alias data.
func NextMessageOp(data []byte) (op MessageOp, rest []byte, err error) {
	d := decoder{b: data}
	op.Type, op.ID, op.Command = d.take(int(d.u8())), d.take(int(d.u16())), d.take(int(d.u8()))
	if op.OnReply = d.take(int(d.u8())); op.WantsAnswer() {
		op.OnReject = d.take(int(d.u8()))
	}
	op.Payload = d.take(int(d.u32()))
	if d.bad || len(op.Type) == 0 || len(op.ID) == 0 || len(op.Command) == 0 || op.WantsAnswer() && len(op.OnReject) == 0 {
		return op, nil, fmt.Errorf("%w: truncated message", ErrDamaged)
	}
	return op, d.b, nil
}

// Sources of a command, except timers. The source is the first byte of a source
// section.
const (
	// SourceEntity is a message from another entity or from the entity itself.
	SourceEntity = 3
	// SourceDeadLetter is a dead letter that an operator redelivered.
	SourceDeadLetter = 4
)

// MessageSource is the message that caused a command. The record takes effect
// only if the highest number that its entity has received from the source is
// below Number and at least After. Numbers between After and Number were
// abandoned before they could reach any entity, so After is usually Number-1.
type MessageSource struct {
	Type, ID      []byte
	Number, After uint64
	// Hops is the length of the chain of messages that led to the messages of
	// the record. Hops is 0 if the length is not counted.
	Hops uint8
	// Answers means that the source expects a reply, and that the record's last
	// message, or its refusal, is that reply. It is set from
	// sharding.VersionMessageReplies on.
	Answers bool
}

// MaxHops bounds a chain of messages in which the record of each message sent
// the next message. A message beyond the bound becomes a dead letter.
const MaxHops = 64

// A message's number is below 1 << 56. The byte above it holds the hops, which
// are below 1 << 7, and a flag bit.
const (
	hopsShift = 56
	markShift = 63
)

// PackHops stores hops and a flag in the highest byte of a message's number.
func PackHops(number uint64, hops uint8, mark bool) uint64 {
	packed := number | uint64(hops)<<hopsShift
	if mark {
		packed |= 1 << markShift
	}
	return packed
}

// UnpackHops is the inverse of PackHops.
func UnpackHops(packed uint64) (number uint64, hops uint8, mark bool) {
	return packed & (1<<hopsShift - 1), uint8(packed>>hopsShift) & (1<<7 - 1), packed>>markShift == 1
}

// InTurn reports whether the message is the next one for an entity that has
// received up to the given number.
func (s *MessageSource) InTurn(received uint64) bool {
	return s.After <= received && received < s.Number
}

// AppendMessageSource appends the data of a source section: u8 3, type (len
// u8), id (len u16), number u56, hops u7, answers u1, after u64.
func AppendMessageSource(dst []byte, s *MessageSource) []byte {
	dst = append8(append(dst, SourceEntity), string(s.Type))
	dst = append16(dst, string(s.ID))
	dst = binary.LittleEndian.AppendUint64(dst, PackHops(s.Number, s.Hops, s.Answers))
	return binary.LittleEndian.AppendUint64(dst, s.After)
}

// DecodeMessageSource decodes a source section. The slices alias data.
func DecodeMessageSource(data []byte) (s MessageSource, err error) {
	d := decoder{b: data}
	if kind := d.u8(); kind != SourceEntity {
		return s, fmt.Errorf("%w: message source of kind %d", ErrUnsupported, kind)
	}
	s.Type, s.ID = d.take(int(d.u8())), d.take(int(d.u16()))
	s.Number, s.Hops, s.Answers = UnpackHops(d.u64())
	s.After = d.u64()
	if d.bad || len(d.b) != 0 {
		return s, errRunsPast()
	}
	return s, nil
}

// AppendDeadLetterSource appends the data of a source section: u8 4, then the
// dead letter's id as index u64, ordinal u32, item u16. The record takes effect
// only while the dead letter exists, and removes it.
func AppendDeadLetterSource(dst []byte, id ItemID) []byte {
	return appendItemID(append(dst, SourceDeadLetter), id)
}

// DecodeDeadLetterSource decodes a source section.
func DecodeDeadLetterSource(data []byte) (id ItemID, err error) {
	d := decoder{b: data}
	if kind := d.u8(); kind != SourceDeadLetter {
		return id, fmt.Errorf("%w: message source of kind %d", ErrUnsupported, kind)
	}
	if id = d.itemID(); d.bad || len(d.b) != 0 {
		return id, errRunsPast()
	}
	return id, nil
}

// Refusal in a record means that a message was rejected and that no entity
// waits for its outcome: it becomes a dead letter.
type Refusal struct {
	Code, Message    []byte
	Command, Payload []byte // of the message
	Token            []byte // of the message; empty for none
}

// AppendRefusal appends the data of a refusal section: code (len u8), message
// (len u16), command (len u8), payload to the end. If the message has a token,
// 0 u8 and the token (len u8) precede the command.
func AppendRefusal(dst []byte, r *Refusal) []byte {
	dst = append8(dst, string(r.Code))
	dst = append16(dst, string(r.Message))
	if len(r.Token) > 0 {
		dst = append8(append(dst, 0), string(r.Token))
	}
	dst = append8(dst, string(r.Command))
	return append(dst, r.Payload...)
}

// DecodeRefusal decodes a refusal section. The slices alias data.
func DecodeRefusal(data []byte) (r Refusal, err error) {
	d := decoder{b: data}
	r.Code, r.Message, r.Command = d.take(int(d.u8())), d.take(int(d.u16())), d.take(int(d.u8()))
	if len(r.Command) == 0 && len(d.b) > 0 {
		r.Token, r.Command = d.take(int(d.u8())), d.take(int(d.u8()))
	}
	if d.bad {
		return r, errRunsPast()
	}
	r.Payload = d.b
	return r, nil
}

// Message is an unacknowledged message.
type Message struct {
	ID                  ItemID // in the source's shard
	Source, Destination sharding.EntityID
	Number              uint64 // counted per channel, starting at 1
	At                  int64  // unix nanoseconds of the shard's log clock when it was sent
	Command             string
	OnReply, OnReject   string // empty if no reply is expected
	Payload             []byte
	Hops                uint8 // number of messages that led to this message; 0 if not counted
	// Answer means that the message is the reply to a message that its
	// destination sent.
	Answer bool
	// Token is returned with the outcome. If the message is an outcome itself,
	// Token is the token of the answered message. Empty means none.
	Token string
	// Trace is the span of the command that sent the message, or nil if the
	// trace is not sampled.
	Trace *TraceContext
}

// DeadLetter is a message that was rejected and whose outcome no entity waits
// for.
type DeadLetter struct {
	ID                  ItemID // in its shard
	Source, Destination sharding.EntityID
	// Number is the message's number; the dead letter is then in the
	// destination's shard. Number is 0 if the message was abandoned before the
	// destination's shard was known; the dead letter is then in the source's
	// shard.
	Number        uint64
	At            int64 // unix nanoseconds when it was rejected
	Command       string
	Code, Message string // the reason
	Payload       []byte
	Token         string // of the message; empty for none
}

// ChannelCounters is the state of a channel (source, destination) in the source's
// shard.
type ChannelCounters struct {
	Last uint64 // last number assigned to a message
	// The messages with numbers above After and up to GivenUp were abandoned.
	// Both are 0 if no message was abandoned.
	After, GivenUp uint64
}

// AfterOf returns MessageSource.After for a message of the channel.
func (c *ChannelCounters) AfterOf(number uint64) uint64 {
	if c.GivenUp > 0 && number == c.GivenUp+1 {
		return c.After
	}
	return number - 1
}

// GiveUp records that the first unacknowledged message is abandoned.
func (c *ChannelCounters) GiveUp(number uint64) {
	c.After, c.GivenUp = c.AfterOf(number), number
}

// MessageTotals counts the messages and dead letters of a shard.
type MessageTotals struct {
	Messages, MessageBytes       uint64 // not yet acknowledged
	DeadLetters, DeadLetterBytes uint64
}

func appendItemID(dst []byte, id ItemID) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, id.Index)
	dst = binary.LittleEndian.AppendUint32(dst, id.Ordinal)
	return binary.LittleEndian.AppendUint16(dst, id.Item)
}

func (d *decoder) itemID() ItemID {
	return ItemID{Index: d.u64(), Ordinal: d.u32(), Item: d.u16()}
}

func append32(dst, b []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...)
}
