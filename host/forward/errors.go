package forward

import (
	"errors"
	"strings"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// kindOpaque is the kind of an error that is not in the table of outcomes.
const kindOpaque = 1

// Fields of ForwardError.
const (
	tagErrKind     = 1 << 3
	tagErrText     = 2<<3 | 2
	tagErrCode     = 3<<3 | 2
	tagErrMessage  = 4<<3 | 2
	tagErrExpected = 5 << 3
	tagErrActual   = 6 << 3
	tagErrShard    = 7 << 3
	tagErrTerm     = 8 << 3
	tagErrLeader   = 9<<3 | 2
	tagErrWait     = 10 << 3
	tagErrType     = 11<<3 | 2
	tagErrFault    = 12<<3 | 2
)

// Fields of a violation.
const (
	tagFaultField = 1<<3 | 2
	tagFaultText  = 2<<3 | 2
)

// maxErrorText is the length to which the text of an error is truncated, in
// bytes.
const maxErrorText = 4 << 10

// distantError is an error of another node: its text, and the error that it
// wraps.
type distantError struct {
	text string
	err  error // nil if it wraps no sentinel
}

func (e *distantError) Error() string { return e.text }

func (e *distantError) Unwrap() error { return e.err }

// appendError encodes an error.
func appendError(dst []byte, err error) []byte {
	o := request.OutcomeOf(err)
	if o == nil {
		return appendBytes(appendVarint(dst, tagErrKind, kindOpaque), tagErrText, truncateText(err.Error()))
	}
	dst = appendVarint(dst, tagErrKind, o.Wire)
	var (
		notLeader *sharding.NotLeaderError
		rejected  *request.RejectedError
		mismatch  *request.SequenceMismatchError
		fault     *request.GuestFaultError
		module    *request.InvalidModuleError
		rate      *request.RateLimitedError
		gap       *request.GapError
		denied    *request.DeniedError
		payload   *request.InvalidPayloadError
	)
	switch {
	case o.Err == err:
		return dst // both sides know its text
	case o.Err != nil:
		return appendBytes(dst, tagErrText, truncateText(err.Error()))
	case errors.As(err, &rate):
		return appendVarint(appendBytes(dst, tagErrMessage, rate.Limit), tagErrWait, uint64(max(0, rate.RetryAfter)))
	case errors.As(err, &rejected):
		return appendBytes(appendBytes(dst, tagErrCode, rejected.Code), tagErrMessage, rejected.Message)
	case errors.As(err, &mismatch):
		return appendVarint(appendVarint(dst, tagErrExpected, uint64(mismatch.Expected)), tagErrActual, uint64(mismatch.Actual))
	case errors.As(err, &gap):
		return appendVarint(dst, tagErrExpected, gap.Wanted)
	case errors.As(err, &denied):
		dst = appendBytes(appendBytes(dst, tagErrCode, denied.Verb), tagErrMessage, truncateText(denied.Message))
		return appendBytes(dst, tagErrType, denied.EntityType)
	case errors.As(err, &fault):
		return appendBytes(dst, tagErrMessage, fault.Message)
	case errors.As(err, &payload):
		for _, v := range payload.Violations[:min(len(payload.Violations), request.MaxViolations)] {
			fault := appendBytes(appendBytes(nil, tagFaultField, truncateText(v.Field)), tagFaultText, truncateText(v.Text))
			dst = appendBytes(dst, tagErrFault, fault)
		}
		return dst
	case errors.As(err, &module):
		return appendBytes(dst, tagErrMessage, module.Reason)
	case errors.As(err, &notLeader):
		dst = appendVarint(dst, tagErrShard, uint64(notLeader.Shard))
		dst = appendVarint(dst, tagErrTerm, uint64(notLeader.Term))
		return appendBytes(dst, tagErrLeader, string(notLeader.Leader))
	}
	panic("forward: an outcome without an encoding")
}

func truncateText(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxErrorText)], "?") }

// parseError decodes an error. malformed is set if that fails.
func parseError(b []byte) (failure, malformed error) {
	var kind uint64
	var text, code, message, entityType string
	var mismatch request.SequenceMismatchError
	var notLeader sharding.NotLeaderError
	var wait time.Duration
	var payload request.InvalidPayloadError
	err := fields(b, func(tag, n uint64, b []byte) error {
		switch tag {
		case tagErrKind:
			kind = n
		case tagErrText:
			text = string(b)
		case tagErrCode:
			code = string(b)
		case tagErrMessage:
			message = string(b)
		case tagErrExpected:
			mismatch.Expected = journal.Sequence(n)
		case tagErrActual:
			mismatch.Actual = journal.Sequence(n)
		case tagErrShard:
			notLeader.Shard = sharding.ShardID(n)
		case tagErrTerm:
			notLeader.Term = sharding.Term(n)
		case tagErrLeader:
			notLeader.Leader = sharding.NodeID(b)
		case tagErrType:
			entityType = string(b)
		case tagErrWait:
			wait = time.Duration(min(n, uint64(time.Minute)))
		case tagErrFault:
			if len(payload.Violations) < request.MaxViolations {
				v, err := parseViolation(b)
				payload.Violations = append(payload.Violations, v)
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch kind {
	case request.WireNotLeader:
		return &notLeader, nil
	case request.WireRejected:
		return &request.RejectedError{Code: code, Message: message}, nil
	case request.WireDenied:
		return &request.DeniedError{Verb: code, EntityType: entityType, Message: message}, nil
	case request.WireMismatch:
		return &mismatch, nil
	case request.WireGap:
		return &request.GapError{Wanted: uint64(mismatch.Expected)}, nil
	case request.WireGuestFault:
		return &request.GuestFaultError{Message: message}, nil
	case request.WireRateLimited:
		return &request.RateLimitedError{RetryAfter: wait, Limit: message}, nil
	case request.WirePayload:
		return &payload, nil
	case request.WireModule:
		return &request.InvalidModuleError{Reason: message}, nil
	}
	known := request.Sentinel(kind)
	if known != nil && text == "" {
		return known, nil
	}
	return &distantError{text: text, err: known}, nil
}

func parseViolation(b []byte) (v request.Violation, err error) {
	err = fields(b, func(tag, _ uint64, b []byte) error {
		switch tag {
		case tagFaultField:
			v.Field = string(b)
		case tagFaultText:
			v.Text = string(b)
		}
		return nil
	})
	return v, err
}
