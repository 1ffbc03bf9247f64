package store

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Unacknowledged messages and dead letters are stored under the entry that
// created them, so that they can be read in batches. Counters are stored under
// their entity or channel.

const itemIDBytes = 8 + 4 + 2

// AppendItemID appends the suffix of an outbox or dead letter key, big endian.
func AppendItemID(dst []byte, id journal.ItemID) []byte {
	dst = binary.BigEndian.AppendUint64(dst, id.Index)
	dst = binary.BigEndian.AppendUint32(dst, id.Ordinal)
	return binary.BigEndian.AppendUint16(dst, id.Item)
}

// DecodeItemID is the inverse of AppendItemID.
func DecodeItemID(rest []byte) (id journal.ItemID, err error) {
	if len(rest) != itemIDBytes {
		return id, fmt.Errorf("%w: a message id with %d bytes", journal.ErrDamaged, len(rest))
	}
	return journal.ItemID{
		Index: binary.BigEndian.Uint64(rest), Ordinal: binary.BigEndian.Uint32(rest[8:]), Item: binary.BigEndian.Uint16(rest[12:]),
	}, nil
}

// AppendPair appends two entities as encoded in keys: destination and source
// for an inbox key, source and destination for a count key.
func AppendPair(dst []byte, typ, id, otherType, otherID []byte) []byte {
	return AppendEntity(AppendEntity(dst, typ, id), otherType, otherID)
}

// AppendMessage appends the body of an outbox value. Layout, little endian:
// number u56, hops u7, answer u1, at i64, source type (len u8), id (len u16),
// destination type (len u8), id (len u16), command (len u8), command for
// success (len u8), command for rejection (len u8), payload to the end. If the
// message has a trace, 0 u8 and the trace precede the command. If it has a
// token, the token precedes both, as appendToken writes it.
func AppendMessage(dst []byte, s *journal.Message) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, journal.PackHops(s.Number, s.Hops, s.Answer))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(s.At))
	dst = appendEntityField(dst, s.Source)
	dst = appendEntityField(dst, s.Destination)
	dst = appendToken(dst, s.Token)
	if s.Trace != nil {
		dst = journal.AppendTraceContext(append(dst, 0), s.Trace)
	}
	dst = append8(dst, s.Command)
	dst = append8(dst, s.OnReply)
	dst = append8(dst, s.OnReject)
	return append(dst, s.Payload...)
}

// DecodeMessage is the inverse of AppendMessage. The payload aliases body.
func DecodeMessage(body []byte, id journal.ItemID) (s journal.Message, err error) {
	f := fields{b: body}
	s.ID = id
	s.Number, s.Hops, s.Answer = journal.UnpackHops(f.u64())
	s.At = int64(f.u64())
	s.Source, s.Destination = f.entity(), f.entity()
	s.Token, s.Command = f.tokenAndText()
	if s.Command == "" && len(f.b) >= journal.TraceContextBytes {
		in, err := journal.DecodeTraceContext(f.take(journal.TraceContextBytes))
		if err != nil {
			return s, err
		}
		s.Trace, s.Command = &in, f.text8()
	}
	s.OnReply, s.OnReject = f.text8(), f.text8()
	s.Payload = f.b
	if f.bad || s.Number == 0 || s.Command == "" || s.Source.ID == "" || s.Destination.ID == "" {
		return s, fmt.Errorf("%w: message with %d bytes", journal.ErrDamaged, len(body))
	}
	return s, nil
}

// appendToken appends the token of a message, or nothing if there is none: 0
// u8, 16 zero bytes, token (len u8). The token is distinguishable from a trace
// in the same place, which is not all zeros, and from a command, which is not
// empty.
func appendToken(dst []byte, token string) []byte {
	if token == "" {
		return dst
	}
	return append8(append(dst, make([]byte, 1+tokenMarkBytes)...), token)
}

const tokenMarkBytes = 16

// tokenAndText reads a token, which is empty if there is none, and the text
// after it.
func (f *fields) tokenAndText() (token, text string) {
	if text = f.text8(); text != "" || len(f.b) < tokenMarkBytes || [tokenMarkBytes]byte(f.b) != [tokenMarkBytes]byte{} {
		return "", text
	}
	f.take(tokenMarkBytes)
	if token = f.text8(); token == "" {
		f.bad = true
	}
	return token, f.text8()
}

// AppendDeadLetter appends the body of a dead letter. Layout, little endian:
// number u64, at i64, source type (len u8), id (len u16), destination type (len
// u8), id (len u16), command (len u8), code (len u8), message (len u16),
// payload to the end. A token precedes the command, as appendToken writes it.
func AppendDeadLetter(dst []byte, l *journal.DeadLetter) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, l.Number)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(l.At))
	dst = appendEntityField(dst, l.Source)
	dst = appendEntityField(dst, l.Destination)
	dst = appendToken(dst, l.Token)
	dst = append8(dst, l.Command)
	dst = append8(dst, l.Code)
	dst = append16(dst, l.Message)
	return append(dst, l.Payload...)
}

// DecodeDeadLetter is the inverse of AppendDeadLetter. The payload aliases
// body.
func DecodeDeadLetter(body []byte, id journal.ItemID) (l journal.DeadLetter, err error) {
	f := fields{b: body}
	l.ID, l.Number, l.At = id, f.u64(), int64(f.u64())
	l.Source, l.Destination = f.entity(), f.entity()
	l.Token, l.Command = f.tokenAndText()
	l.Code = f.text8()
	l.Message = string(f.take(int(f.u16())))
	l.Payload = f.b
	if f.bad || l.Source.ID == "" || l.Destination.ID == "" {
		return l, fmt.Errorf("%w: dead letter with %d bytes", journal.ErrDamaged, len(body))
	}
	return l, nil
}

// AppendCount appends the body of a count or inbox value: u64.
func AppendCount(dst []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(dst, n) }

// DecodeCount is the inverse of AppendCount.
func DecodeCount(body []byte) (uint64, error) {
	if len(body) != 8 {
		return 0, fmt.Errorf("%w: a counter with %d bytes", journal.ErrDamaged, len(body))
	}
	return binary.LittleEndian.Uint64(body), nil
}

// AppendChannelCounters appends the body of a channel's counters: last u64 and,
// if messages were abandoned, after u64 and given up u64.
func AppendChannelCounters(dst []byte, c *journal.ChannelCounters) []byte {
	dst = AppendCount(dst, c.Last)
	if c.GivenUp == 0 {
		return dst
	}
	return AppendCount(AppendCount(dst, c.After), c.GivenUp)
}

// DecodeChannelCounters is the inverse of AppendChannelCounters.
func DecodeChannelCounters(body []byte) (c journal.ChannelCounters, err error) {
	f := fields{b: body}
	c.Last = f.u64()
	if len(f.b) > 0 {
		c.After, c.GivenUp = f.u64(), f.u64()
	}
	if f.bad || len(f.b) != 0 {
		return c, fmt.Errorf("%w: a channel counter with %d bytes", journal.ErrDamaged, len(body))
	}
	return c, nil
}

// AppendTotals appends the body of a shard's totals: messages u64, their bytes
// u64, dead letters u64, their bytes u64.
func AppendTotals(dst []byte, t *journal.MessageTotals) []byte {
	for _, n := range [...]uint64{t.Messages, t.MessageBytes, t.DeadLetters, t.DeadLetterBytes} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return dst
}

// DecodeTotals is the inverse of AppendTotals.
func DecodeTotals(body []byte) (t journal.MessageTotals, err error) {
	f := fields{b: body}
	t = journal.MessageTotals{Messages: f.u64(), MessageBytes: f.u64(), DeadLetters: f.u64(), DeadLetterBytes: f.u64()}
	if f.bad || len(f.b) != 0 {
		return t, fmt.Errorf("%w: message totals with %d bytes", journal.ErrDamaged, len(body))
	}
	return t, nil
}

func appendEntityField(dst []byte, e sharding.EntityID) []byte {
	return append16(append8(dst, e.Type), e.ID)
}

func append8(dst []byte, s string) []byte { return append(append(dst, byte(len(s))), s...) }

func append16(dst []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// fields decodes fields from the front of b. After the first short read it is
// bad.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) take(n int) []byte {
	if f.bad || n > len(f.b) {
		f.bad = true
		return nil
	}
	out := f.b[:n:n]
	f.b = f.b[n:]
	return out
}

func (f *fields) u8() uint8 {
	if b := f.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) u16() uint16 {
	if b := f.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if b := f.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (f *fields) text8() string { return string(f.take(int(f.u8()))) }

func (f *fields) entity() sharding.EntityID {
	return sharding.EntityID{Type: f.text8(), ID: string(f.take(int(f.u16())))}
}
