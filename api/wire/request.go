package wire

import (
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Command is one item of a SendStreamRequest. Decoded, its slices alias the
// message.
type Command struct {
	Correlation uint64
	EntityType  []byte
	EntityID    []byte
	Name        []byte
	Kind        PayloadKind
	Payload     []byte
	CommandID   []byte
	// Expected is the sequence that the entity must be at, if HasExpected is
	// set.
	Expected    uint64
	HasExpected bool
	// FirstAge is how long ago the first attempt was made; 0 means that this is
	// the first attempt. It is negative if the sender claims so.
	FirstAge time.Duration
}

// ParseRequest calls fn for every command of an encoded SendStreamRequest, in
// order. The command is valid during fn, and its slices as long as msg. It
// stops at the first error of fn and returns it; other errors wrap
// ErrMalformed.
func ParseRequest(msg []byte, fn func(*Command) error) error {
	var c Command
	return fields(msg, func(tag, _ uint64, item []byte) error {
		if tag != tagItem {
			return nil
		}
		c = Command{}
		if err := c.parseItem(item); err != nil {
			return err
		}
		return fn(&c)
	})
}

func (c *Command) parseItem(item []byte) error {
	return fields(item, func(tag, n uint64, b []byte) error {
		switch tag {
		case tagCorrelation:
			c.Correlation = n
		case tagRequest:
			return c.parseSend(b)
		}
		return nil
	})
}

func (c *Command) parseSend(msg []byte) error {
	return fields(msg, func(tag, n uint64, b []byte) error {
		switch tag {
		case tagEntityType:
			c.EntityType = b
		case tagEntityID:
			c.EntityID = b
		case tagCommand:
			c.Name = b
		case tagInJSON:
			c.Kind, c.Payload = JSONPayload, b
		case tagInData:
			c.Kind, c.Payload = DataPayload, b
		case tagCommandID:
			c.CommandID = b
		case tagExpected:
			c.Expected, c.HasExpected = n, true
		case tagFirstAgeMs:
			c.FirstAge = time.Duration(min(n, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
		case tagFirstAge:
			var err error
			c.FirstAge, err = parseDuration(b)
			return err
		}
		return nil
	})
}

// parseDuration decodes a google.protobuf.Duration. A value that does not fit
// becomes the largest or the smallest one.
func parseDuration(msg []byte) (time.Duration, error) {
	var seconds int64
	var nanos int32
	err := fields(msg, func(tag, n uint64, _ []byte) error {
		switch tag {
		case tagSeconds:
			seconds = int64(n)
		case tagNanos:
			nanos = int32(n)
		}
		return nil
	})
	return (&durationpb.Duration{Seconds: seconds, Nanos: nanos}).AsDuration(), err
}

// Outgoing is a command to be encoded.
type Outgoing struct {
	EntityType string
	EntityID   string
	Name       string
	Data       []byte // sent as data, even if it is empty
	CommandID  string
	// Expected is the sequence that the entity must be at, if HasExpected is
	// set.
	Expected    uint64
	HasExpected bool
	FirstAge    time.Duration // see Command
}

// Size is the approximate number of bytes that AppendCommand appends; the
// length of the correlation number is not exact.
func (o *Outgoing) Size() int {
	return 32 + o.sendSize()
}

func (o *Outgoing) sendSize() int {
	n := sizeBytesField(len(o.EntityType)) + sizeBytesField(len(o.EntityID)) + sizeBytesField(len(o.Name)) +
		1 + protowire.SizeBytes(len(o.Data)) + sizeBytesField(len(o.CommandID))
	if o.HasExpected {
		n += 1 + protowire.SizeVarint(o.Expected)
	}
	return n + sizeDurationField(o.FirstAge)
}

// AppendCommand appends one item to an encoded SendStreamRequest.
func AppendCommand(dst []byte, correlation uint64, o *Outgoing) []byte {
	send := o.sendSize()
	dst = append(dst, tagItem)
	dst = protowire.AppendVarint(dst, uint64(sizeVarintField(correlation)+1+protowire.SizeBytes(send)))
	dst = appendVarintField(dst, tagCorrelation, correlation)
	dst = append(dst, tagRequest)
	dst = protowire.AppendVarint(dst, uint64(send))
	dst = appendBytesField(dst, tagEntityType, o.EntityType)
	dst = appendBytesField(dst, tagEntityID, o.EntityID)
	dst = appendBytesField(dst, tagCommand, o.Name)
	dst = appendBytesAlways(dst, tagInData, o.Data)
	dst = appendBytesField(dst, tagCommandID, o.CommandID)
	if o.HasExpected {
		dst = protowire.AppendVarint(append(dst, tagExpected), o.Expected)
	}
	return appendDurationField(dst, tagFirstAge, o.FirstAge)
}
