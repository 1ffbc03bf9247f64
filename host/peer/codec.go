package peer

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of peer.proto, combined with their wire types.
const (
	tagFrames    = 1<<3 | 2 // LinkRequest.frames
	tagHeartbeat = 2 << 3   // LinkRequest.beat
	tagEcho      = 1 << 3   // LinkResponse.beat
	tagReceived  = 2 << 3   // LinkResponse.received_bytes
	tagTurns     = 30 << 3  // LinkRequest.loop_turns and LinkResponse.loop_turns
	tagClock     = 31 << 3  // LinkResponse.clock_nanos
	tagHeld      = 32 << 3  // LinkResponse.held_micros
)

// errMalformed: a message of a link cannot be decoded. The link is then
// closed, and a new link is made.
var errMalformed = errors.New("malformed message between nodes")

// batch is a LinkRequest.
type batch struct {
	frames    [][]byte
	heartbeat uint64
	turns     uint64 // iterations of the sender's raft loop; only with a heartbeat
}

// echo is a LinkResponse.
type echo struct {
	heartbeat, received uint64
	turns               uint64 // iterations of the answering node's raft loop
	clock               int64  // wall clock of the answering node in Unix nanoseconds; 0 if it was not sent
	held                uint64 // time since the heartbeat arrived, in microseconds
}

// linkCodec encodes and decodes the two messages of a link as peer.proto
// defines them. Encoding allocates only the destination. Decoding a batch
// allocates its bytes once, and its frames share them.
type linkCodec struct{}

// Name implements connect.Codec.
func (linkCodec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (c linkCodec) Marshal(msg any) ([]byte, error) { return c.MarshalAppend(nil, msg) }

// MarshalAppend appends an encoded message.
func (linkCodec) MarshalAppend(dst []byte, msg any) ([]byte, error) {
	switch m := msg.(type) {
	case *batch:
		return m.append(dst), nil
	case *echo:
		dst = protowire.AppendVarint(append(dst, tagEcho), m.heartbeat)
		dst = protowire.AppendVarint(append(dst, tagReceived), m.received)
		dst = appendNumber(dst, tagTurns, m.turns)
		dst = appendNumber(dst, tagClock, protowire.EncodeZigZag(m.clock))
		return appendNumber(dst, tagHeld, m.held), nil
	}
	return nil, fmt.Errorf("%T is not a message between nodes", msg)
}

func (b *batch) append(dst []byte) []byte {
	size := 0
	for _, f := range b.frames {
		size += frameSize(f)
	}
	dst = slices.Grow(dst, size+1+protowire.SizeVarint(b.heartbeat)+2+protowire.SizeVarint(b.turns))
	for _, f := range b.frames {
		dst = protowire.AppendVarint(append(dst, tagFrames), uint64(len(f)))
		dst = append(dst, f...)
	}
	if b.heartbeat != 0 {
		dst = protowire.AppendVarint(append(dst, tagHeartbeat), b.heartbeat)
	}
	return appendNumber(dst, tagTurns, b.turns)
}

// appendNumber appends a field unless it is 0.
func appendNumber(dst []byte, tag, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendVarint(dst, tag), n)
}

// frameSize returns the size of a frame in a message.
func frameSize(frame []byte) int { return 1 + protowire.SizeBytes(len(frame)) }

// Unmarshal implements connect.Codec. data belongs to the caller.
func (linkCodec) Unmarshal(data []byte, msg any) error {
	switch m := msg.(type) {
	case *batch:
		return m.parse(slices.Clone(data))
	case *echo:
		return m.parse(data)
	}
	return fmt.Errorf("%T is not a message between nodes", msg)
}

// parse decodes msg. The frames alias it. Empty frames are skipped.
func (b *batch) parse(msg []byte) error {
	clear(b.frames)
	b.frames, b.heartbeat, b.turns = b.frames[:0], 0, 0
	return fields(msg, func(tag, n uint64, value []byte) {
		switch {
		case tag == tagHeartbeat:
			b.heartbeat = n
		case tag == tagTurns:
			b.turns = n
		case tag == tagFrames && len(value) > 0:
			b.frames = append(b.frames, value)
		}
	})
}

func (e *echo) parse(msg []byte) error {
	*e = echo{}
	return fields(msg, func(tag, n uint64, _ []byte) {
		switch tag {
		case tagEcho:
			e.heartbeat = n
		case tagReceived:
			e.received = n
		case tagTurns:
			e.turns = n
		case tagClock:
			e.clock = protowire.DecodeZigZag(n)
		case tagHeld:
			e.held = n
		}
	})
}

// fields calls fn for each varint and length-delimited field and skips others.
func fields(msg []byte, fn func(tag, n uint64, value []byte)) error {
	for len(msg) > 0 {
		number, kind, used := protowire.ConsumeTag(msg)
		if used < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(used))
		}
		msg = msg[used:]
		var n uint64
		var value []byte
		switch kind {
		case protowire.VarintType:
			n, used = protowire.ConsumeVarint(msg)
		case protowire.BytesType:
			value, used = protowire.ConsumeBytes(msg)
		default:
			used = protowire.ConsumeFieldValue(number, kind, msg)
		}
		if used < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(used))
		}
		msg = msg[used:]
		if kind == protowire.VarintType || kind == protowire.BytesType {
			fn(uint64(number)<<3|uint64(kind), n, value[:len(value):len(value)])
		}
	}
	return nil
}
