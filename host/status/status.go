package status

import (
	"errors"
	"log/slog"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// Error is a public error of the server, with its code. Its text is written for
// callers.
type Error struct {
	code connect.Code
	text string
}

// New makes a sentinel error, which is compared by identity.
func New(code connect.Code, text string) *Error { return &Error{code, text} }

// Argument makes an error for invalid input of the caller.
func Argument(text string) *Error { return &Error{connect.CodeInvalidArgument, text} }

func (e *Error) Error() string { return e.text }

// Coded is a public error with data, which knows its code.
type Coded interface {
	error
	Code() connect.Code
}

// Detailed is an error with a detail message for callers.
type Detailed interface {
	error
	Detail() proto.Message
}

// ErrLate: the caller's deadline passed before there was an answer. The call
// changes nothing, as a query, or can be repeated safely.
var ErrLate = New(connect.CodeDeadlineExceeded, "the deadline passed before the response arrived; nothing was changed, or the call can be repeated")

// ErrNoOutcome: the caller's deadline passed before the outcome of a command was
// known. The command was sent, and may have taken effect.
var ErrNoOutcome = New(connect.CodeDeadlineExceeded, "the deadline passed before the outcome was known; retry with the same command id")

// Reasons in an ErrorInfo: the events cursor refers to a history that the log
// does not have; the outcome of a retried command cannot be known; a client
// called an internal command; the caller's roles do not allow the call; the
// roles are too old to decide by.
const (
	ReasonHistoryLost = "CURSOR_HISTORY_LOST"

	reasonForgotten = "COMMAND_OUTCOME_UNKNOWN"
	reasonInternal  = "INTERNAL_COMMAND"
	reasonDenied    = "ROLE_REQUIRED"
	reasonStale     = "STALE_ROLES"
	errorDomain     = "hostd"
)

// codeOf returns the code of an error. The text of an error with a code is
// public. An error without a code is internal, and its text only goes to the
// log.
//
// An unknown outcome is deadline_exceeded, never unavailable, because a caller
// may understand unavailable to mean that nothing happened and send the command again
// under a different id.
func codeOf(err error) (code connect.Code, known bool) {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.code, true
	}
	if o := request.OutcomeOf(err); o != nil {
		return connect.Code(o.Code), true
	}
	if coded, ok := errors.AsType[Coded](err); ok {
		return coded.Code(), true
	}
	if _, ok := errors.AsType[*journal.TruncatedError](err); ok || errors.Is(err, journal.ErrOtherHistory) {
		return connect.CodeOutOfRange, true
	}
	return connect.CodeInternal, false
}

// Reason makes an ErrorInfo detail, by which programs recognize an error.
func Reason(name string) proto.Message {
	return &errdetails.ErrorInfo{Reason: name, Domain: errorDomain}
}

// Public converts err to the error that the caller gets: a *connect.Error
// unchanged, any other error with its code and its detail. An error without a
// code is logged and becomes "internal error".
func Public(log *slog.Logger, err error) *connect.Error {
	var already *connect.Error
	if errors.As(err, &already) {
		return already
	}
	code, known := codeOf(err)
	if !known {
		log.Error("request failed", "error", err)
		return connect.NewError(code, errors.New("internal error"))
	}
	out := connect.NewError(code, err)
	if detail := Detail(err); detail != nil {
		if d, err := connect.NewErrorDetail(detail); err == nil {
			out.AddDetail(d)
		}
		if former := formerDetail(detail); former != nil {
			if d, err := connect.NewErrorDetail(former); err == nil {
				out.AddDetail(d)
			}
		}
	}
	return out
}

// formerTruncated is the type of EventsTruncated in the previous release, which
// had the same fields.
const formerTruncated = "type.googleapis.com/hostd.entity.v1.EventsCut"

// formerDetail returns a detail under the name that clients of the previous
// release know, nil if the name is the same.
func formerDetail(detail proto.Message) proto.Message {
	truncated, ok := detail.(*entityv1.EventsTruncated)
	if !ok {
		return nil
	}
	value, err := proto.Marshal(truncated)
	if err != nil {
		return nil
	}
	return &anypb.Any{TypeUrl: formerTruncated, Value: value}
}

// Detail returns the detail message of an error, or nil.
func Detail(err error) proto.Message {
	var rejected *request.RejectedError
	if errors.As(err, &rejected) {
		return &entityv1.Rejection{Code: rejected.Code, Message: rejected.Message}
	}
	if detailed, ok := errors.AsType[Detailed](err); ok {
		return detailed.Detail()
	}
	if errors.Is(err, journal.ErrOtherHistory) {
		return Reason(ReasonHistoryLost)
	}
	if errors.Is(err, request.ErrForgotten) {
		return &errdetails.ErrorInfo{Reason: reasonForgotten, Domain: errorDomain}
	}
	if errors.Is(err, request.ErrInternalCommand) {
		return &errdetails.ErrorInfo{Reason: reasonInternal, Domain: errorDomain}
	}
	if errors.Is(err, request.ErrRolesStale) {
		return &errdetails.ErrorInfo{Reason: reasonStale, Domain: errorDomain}
	}
	var denied *request.DeniedError
	if errors.As(err, &denied) {
		about := map[string]string{"verb": denied.Verb}
		if denied.EntityType != "" {
			about["type"] = denied.EntityType
		}
		return &errdetails.ErrorInfo{Reason: reasonDenied, Domain: errorDomain, Metadata: about}
	}
	var limited *request.RateLimitedError
	if errors.As(err, &limited) {
		return &errdetails.RetryInfo{RetryDelay: durationpb.New(limited.RetryAfter)}
	}
	if payload, ok := errors.AsType[*request.InvalidPayloadError](err); ok {
		out := &errdetails.BadRequest{}
		for _, v := range payload.Violations {
			out.FieldViolations = append(out.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Text})
		}
		return out
	}
	var mismatch *request.SequenceMismatchError
	if errors.As(err, &mismatch) {
		return &entityv1.SequenceMismatch{Actual: uint64(mismatch.Actual)}
	}
	var cut *journal.TruncatedError
	if errors.As(err, &cut) {
		return &entityv1.EventsTruncated{First: uint64(cut.First)}
	}
	var stateCut *StateTruncatedError
	if errors.As(err, &stateCut) && stateCut.From > 0 {
		return &entityv1.EventsTruncated{First: uint64(stateCut.From)}
	}
	return nil
}
