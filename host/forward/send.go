package forward

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// Fields of a request's Send.
const (
	tagSendType    = 1<<3 | 2
	tagSendID      = 2<<3 | 2
	tagSendNumber  = 3 << 3
	tagSendReply   = 4<<3 | 2
	tagSendReject  = 5<<3 | 2
	tagSendCode    = 6<<3 | 2
	tagSendMessage = 7<<3 | 2
	tagSendAfter   = 8 << 3
	tagSendAt      = 80 << 3
	tagSendHops    = 81 << 3
	tagSendAnswer  = 82 << 3
	tagSendToken   = 83<<3 | 2
)

// sendSize returns an upper bound of the encoded size of a delivery.
func sendSize(d *request.Delivery) int {
	if d == nil {
		return 0
	}
	n := 80 + len(d.Source.Type) + len(d.Source.ID) + len(d.OnReply) + len(d.OnReject) + len(d.Token)
	if d.Refuse != nil {
		n += len(d.Refuse.Code) + len(d.Refuse.Message)
	}
	return n
}

// appendSend appends the message that a request delivers, or nothing if there
// is none.
func appendSend(dst []byte, d *request.Delivery) []byte {
	if d == nil {
		return dst
	}
	dst = appendBytes(dst, tagSendType, d.Source.Type)
	dst = appendBytes(dst, tagSendID, d.Source.ID)
	dst = appendVarint(dst, tagSendNumber, d.Number)
	dst = appendBytes(dst, tagSendReply, d.OnReply)
	dst = appendBytes(dst, tagSendReject, d.OnReject)
	if d.Refuse != nil {
		dst = appendBytes(dst, tagSendCode, d.Refuse.Code)
		dst = appendBytes(dst, tagSendMessage, d.Refuse.Message)
	}
	dst = appendVarint(dst, tagSendAfter, d.After)
	dst = appendFar(dst, tagSendAt, uint64(d.SentAt))
	dst = appendFar(dst, tagSendHops, uint64(d.Hops))
	if d.Answer {
		dst = appendFar(dst, tagSendAnswer, 1)
	}
	return appendFarBytes(dst, tagSendToken, []byte(d.Token))
}

// parseSend is the inverse of appendSend. Strings are copies.
func parseSend(b []byte, names *names) (*request.Delivery, error) {
	d := &request.Delivery{}
	var why request.RejectedError
	err := fields(b, func(tag, n uint64, b []byte) error {
		switch tag {
		case tagSendToken, tagSendReply, tagSendReject:
			if len(b) > math.MaxUint8 { // a record stores the length of a token or a command name in one byte
				return errMalformed
			}
		}
		switch tag {
		case tagSendType:
			d.Source.Type = names.get(b)
		case tagSendID:
			d.Source.ID = string(b)
		case tagSendNumber:
			d.Number = n
		case tagSendAfter:
			d.After = n
		case tagSendAt:
			d.SentAt = int64(n)
		case tagSendHops:
			d.Hops = uint8(min(n, math.MaxUint8))
		case tagSendAnswer:
			d.Answer = n != 0
		case tagSendToken:
			d.Token = string(b)
		case tagSendReply:
			d.OnReply = names.get(b)
		case tagSendReject:
			d.OnReject = names.get(b)
		case tagSendCode:
			why.Code = string(b)
		case tagSendMessage:
			why.Message = string(b)
		}
		return nil
	})
	if why.Code != "" {
		d.Refuse = &why
	}
	if err == nil {
		err = sharding.EntityID{Type: d.Source.Type, ID: d.Source.ID}.Validate()
	}
	return d, err
}

// sendFieldSize returns the size of the field with an encoded message.
func sendFieldSize(encoded []byte) int {
	if len(encoded) == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(len(encoded))
}
