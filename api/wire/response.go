package wire

import "google.golang.org/protobuf/encoding/protowire"

// Answer is one item of a SendStreamResponse: an error if Code is not empty,
// otherwise a reply. Decoded, its slices alias the message.
type Answer struct {
	Correlation uint64

	Kind       PayloadKind
	Payload    []byte
	Sequence   uint64
	EventCount uint64
	Duplicate  bool
	NodeID     []byte
	Fuel       uint64

	Code    []byte
	Message []byte
	Details [][]byte // encoded google.protobuf.Any
}

// ParseResponse calls fn for every answer of an encoded SendStreamResponse, in
// order. The answer is valid during fn, and its slices as long as msg. It stops
// at the first error of fn and returns it; other errors wrap ErrMalformed.
func ParseResponse(msg []byte, fn func(*Answer) error) error {
	var a Answer
	return fields(msg, func(tag, _ uint64, item []byte) error {
		if tag != tagItem {
			return nil
		}
		a = Answer{}
		if err := a.parseItem(item); err != nil {
			return err
		}
		return fn(&a)
	})
}

func (a *Answer) parseItem(item []byte) error {
	return fields(item, func(tag, n uint64, b []byte) error {
		switch tag {
		case tagCorrelation:
			a.Correlation = n
		case tagResponse:
			return a.parseReply(b)
		case tagError:
			return a.parseError(b)
		}
		return nil
	})
}

func (a *Answer) parseReply(msg []byte) error {
	return fields(msg, func(tag, n uint64, b []byte) error {
		switch tag {
		case tagOutJSON:
			a.Kind, a.Payload = JSONPayload, b
		case tagOutData:
			a.Kind, a.Payload = DataPayload, b
		case tagSequence:
			a.Sequence = n
		case tagEventCount:
			a.EventCount = n
		case tagDuplicate:
			a.Duplicate = n != 0
		case tagNodeID:
			a.NodeID = b
		case tagFuel:
			a.Fuel = n
		}
		return nil
	})
}

func (a *Answer) parseError(msg []byte) error {
	return fields(msg, func(tag, _ uint64, b []byte) error {
		switch tag {
		case tagCode:
			a.Code = b
		case tagMessage:
			a.Message = b
		case tagDetail:
			a.Details = append(a.Details, b)
		}
		return nil
	})
}

// Size is an upper bound of the bytes that AppendAnswer appends.
func (a *Answer) Size() int {
	n := 96 + len(a.Payload) + len(a.NodeID) + len(a.Code) + len(a.Message)
	for _, d := range a.Details {
		n += 16 + len(d)
	}
	return n
}

// AppendAnswer appends one item to an encoded SendStreamResponse.
func AppendAnswer(dst []byte, a *Answer) []byte {
	tag, size := byte(tagResponse), 0
	if len(a.Code) > 0 {
		tag, size = tagError, a.errorSize()
	} else {
		size = a.replySize()
	}
	dst = append(dst, tagItem)
	dst = protowire.AppendVarint(dst, uint64(sizeVarintField(a.Correlation)+1+protowire.SizeBytes(size)))
	dst = appendVarintField(dst, tagCorrelation, a.Correlation)
	dst = protowire.AppendVarint(append(dst, tag), uint64(size))
	if tag == tagError {
		return a.appendError(dst)
	}
	return a.appendReply(dst)
}

func (a *Answer) replySize() int {
	n := sizeVarintField(a.Sequence) + sizeVarintField(a.EventCount) + sizeBytesField(len(a.NodeID)) + sizeVarintField(a.Fuel)
	if a.Kind != NoPayload {
		n += 1 + protowire.SizeBytes(len(a.Payload))
	}
	if a.Duplicate {
		n += 2
	}
	return n
}

func (a *Answer) appendReply(dst []byte) []byte {
	switch a.Kind {
	case JSONPayload:
		dst = appendBytesAlways(dst, tagOutJSON, a.Payload)
	case DataPayload:
		dst = appendBytesAlways(dst, tagOutData, a.Payload)
	}
	dst = appendVarintField(dst, tagSequence, a.Sequence)
	dst = appendVarintField(dst, tagEventCount, a.EventCount)
	if a.Duplicate {
		dst = append(dst, tagDuplicate, 1)
	}
	dst = appendBytesField(dst, tagNodeID, a.NodeID)
	return appendVarintField(dst, tagFuel, a.Fuel)
}

func (a *Answer) errorSize() int {
	n := sizeBytesField(len(a.Code)) + sizeBytesField(len(a.Message))
	for _, d := range a.Details {
		n += 1 + protowire.SizeBytes(len(d))
	}
	return n
}

func (a *Answer) appendError(dst []byte) []byte {
	dst = appendBytesField(dst, tagCode, a.Code)
	dst = appendBytesField(dst, tagMessage, a.Message)
	for _, d := range a.Details {
		dst = appendBytesAlways(dst, tagDetail, d)
	}
	return dst
}
