package forward

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Kinds of errors with data of their own; numbers are part of the format and
// never change. The sentinels' are below.
const (
	kindOpaque    = 1
	kindNotLeader = 2
	kindRejected  = 3
	kindMismatch  = 4
	kindFault     = 5
	kindModule    = 6
	kindRate      = 7
	kindGap       = 8
)

// sentinels are the errors that travel by number and are themselves at the
// other end. A number is never used again. Where an error wraps several, the
// first of them counts.
var sentinels = []struct {
	kind uint64
	err  error
}{
	{16, entity.ErrOutcomeUnknown},
	{17, entity.ErrNotApplied},
	{18, entity.ErrStopped},
	{19, entity.ErrBusy},
	{20, entity.ErrDeadline},
	{21, entity.ErrReadOnly},
	{22, entity.ErrUnknownType},
	{23, entity.ErrUnknownCommand},
	{24, entity.ErrUnknownQuery},
	{25, entity.ErrCommandIDReused},
	{26, entity.ErrParked},
	{27, entity.ErrUnsupported},
	{28, entity.ErrDamaged},
	{29, sharding.ErrInvalidName},
	{30, journal.ErrDamaged},
	{31, journal.ErrUnsupported},
	{32, journal.ErrTooLarge},
	{33, rpc.ErrNotReady},
	{34, rpc.ErrModuleNotLoaded},
	{35, rpc.ErrUnknownModule},
	{36, rpc.ErrOverloaded},
	{37, context.DeadlineExceeded},
	{38, context.Canceled},
	{39, router.ErrUnreachable},
	{40, journal.ErrInstalling},
	{41, entity.ErrNotServed},
	{42, entity.ErrOutboxFull},
	{43, entity.ErrLettersFull},
	{44, entity.ErrCut},
	{45, entity.ErrForgotten},
}

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
)

// maxErrorText is where the text of an error is cut.
const maxErrorText = 4 << 10

// distantError is an error of another node: its text, and what it wraps.
type distantError struct {
	text string
	err  error // nil for one that is no sentinel
}

func (e *distantError) Error() string { return e.text }

func (e *distantError) Unwrap() error { return e.err }

// appendError encodes an error.
func appendError(dst []byte, err error) []byte {
	var (
		notLeader *sharding.NotLeaderError
		rejected  *entity.RejectedError
		mismatch  *entity.SequenceMismatchError
		fault     *entity.GuestFaultError
		module    *rpc.InvalidModuleError
		rate      *entity.RateLimitedError
		gap       *entity.GapError
	)
	switch {
	case errors.As(err, &rate):
		return appendVarint(appendVarint(dst, tagErrKind, kindRate), tagErrWait, uint64(max(0, rate.RetryAfter)))
	case errors.As(err, &rejected):
		dst = appendVarint(dst, tagErrKind, kindRejected)
		dst = appendBytes(dst, tagErrCode, rejected.Code)
		return appendBytes(dst, tagErrMessage, rejected.Message)
	case errors.As(err, &mismatch):
		dst = appendVarint(dst, tagErrKind, kindMismatch)
		dst = appendVarint(dst, tagErrExpected, uint64(mismatch.Expected))
		return appendVarint(dst, tagErrActual, uint64(mismatch.Actual))
	case errors.As(err, &gap):
		return appendVarint(appendVarint(dst, tagErrKind, kindGap), tagErrExpected, gap.Wanted)
	case errors.As(err, &fault):
		return appendBytes(appendVarint(dst, tagErrKind, kindFault), tagErrMessage, fault.Message)
	case errors.As(err, &module):
		return appendBytes(appendVarint(dst, tagErrKind, kindModule), tagErrMessage, module.Reason)
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			dst = appendVarint(dst, tagErrKind, s.kind)
			if err == s.err {
				return dst // its text is known
			}
			return appendBytes(dst, tagErrText, cutText(err.Error()))
		}
	}
	if errors.As(err, &notLeader) {
		dst = appendVarint(dst, tagErrKind, kindNotLeader)
		dst = appendVarint(dst, tagErrShard, uint64(notLeader.Shard))
		dst = appendVarint(dst, tagErrTerm, uint64(notLeader.Term))
		return appendBytes(dst, tagErrLeader, string(notLeader.Leader))
	}
	return appendBytes(appendVarint(dst, tagErrKind, kindOpaque), tagErrText, cutText(err.Error()))
}

func cutText(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxErrorText)], "?") }

// parseError decodes an error. The second one says that it does not decode.
func parseError(b []byte) (failure, malformed error) {
	var kind uint64
	var text, code, message string
	var mismatch entity.SequenceMismatchError
	var notLeader sharding.NotLeaderError
	var wait time.Duration
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
		case tagErrWait:
			wait = time.Duration(min(n, uint64(time.Minute)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch kind {
	case kindNotLeader:
		return &notLeader, nil
	case kindRejected:
		return &entity.RejectedError{Code: code, Message: message}, nil
	case kindMismatch:
		return &mismatch, nil
	case kindGap:
		return &entity.GapError{Wanted: uint64(mismatch.Expected)}, nil
	case kindFault:
		return &entity.GuestFaultError{Message: message}, nil
	case kindRate:
		return &entity.RateLimitedError{RetryAfter: wait}, nil
	case kindModule:
		return &rpc.InvalidModuleError{Reason: message}, nil
	}
	for _, s := range sentinels {
		if s.kind == kind {
			if text == "" {
				return s.err, nil
			}
			return &distantError{text: text, err: s.err}, nil
		}
	}
	return &distantError{text: text}, nil
}
