package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// RejectedError is the refusal of a module's handler. Nothing was written.
type RejectedError struct{ Code, Message string }

func (e *RejectedError) Error() string {
	if e.Message == "" {
		return "rejected: " + e.Code
	}
	return fmt.Sprintf("rejected: %s: %s", e.Code, e.Message)
}

// SequenceMismatchError: the entity was not at the expected sequence. Nothing
// was written.
type SequenceMismatchError struct{ Actual uint64 }

func (e *SequenceMismatchError) Error() string {
	return fmt.Sprintf("the entity is at sequence %d", e.Actual)
}

// CutError: what was asked for was cut, as the entity type retains no more
// events. Asking again finds no more.
type CutError struct {
	First   uint64 // the entity's first event that is kept
	Message string
}

func (e *CutError) Error() string { return connect.CodeOutOfRange.String() + ": " + e.Message }

// OtherClusterError: the node at an address belongs to another cluster than
// those that answered this client before. Two clusters share one name of DNS,
// or the list of addresses is wrong, or the cluster was made anew: make a new
// Client then.
type OtherClusterError struct {
	Address         string // host:port
	Cluster, Wanted string // the ids of the node's and of the client's
	refused         bool   // the call named the cluster, so the node did nothing
	all             bool   // no other address is left
}

func (e *OtherClusterError) Error() string {
	return fmt.Sprintf("the node at %s belongs to cluster %s, the others to %s", e.Address, e.Cluster, e.Wanted)
}

func (e *OtherClusterError) code() connect.Code {
	if e.refused {
		return connect.CodeFailedPrecondition
	}
	return connect.CodeUnknown
}

// Error is any other failure that a node, or the way to it, reported.
type Error struct {
	Code    connect.Code
	Message string
	// RetryAfter is how long the node asks to wait before another try, 0 where
	// it does not say.
	RetryAfter time.Duration
	// Reason names the failure for programs, such as KIND_CHANGED; empty where it
	// has no name.
	Reason string

	other error // an *OtherClusterError or nil
}

// Unwrap returns the *OtherClusterError that ended the last attempt, where an
// earlier one makes the outcome unknown; nil otherwise.
func (e *Error) Unwrap() error { return e.other }

func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }

// ErrClosed is returned by a Stream that is closed.
var ErrClosed = errors.New("the stream is closed")

// CodeOf returns the code of an error of this package: failed_precondition for
// the typed ones, unknown for errors that are not of this package.
func CodeOf(err error) connect.Code {
	var rejected *RejectedError
	var mismatch *SequenceMismatchError
	var cut *CutError
	var other *Error
	var elsewhere *OtherClusterError
	switch {
	case errors.As(err, &cut):
		return connect.CodeOutOfRange
	case errors.As(err, &other):
		return other.Code
	case errors.As(err, &rejected), errors.As(err, &mismatch):
		return connect.CodeFailedPrecondition
	case errors.As(err, &elsewhere):
		return elsewhere.code()
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	}
	return connect.CodeUnknown
}

// IsNotFound reports that the entity type, command, query or module does not
// exist.
func IsNotFound(err error) bool { return CodeOf(err) == connect.CodeNotFound }

// HistoryLost reports that a cursor is one of a history that the cluster does not
// have any more, because a data directory was restored or a shard was recovered
// without its newest events. Discard what was made of the events and subscribe
// without a cursor: some of them never happened.
func HistoryLost(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Reason == "CURSOR_HISTORY_LOST"
}

// IsUnavailable reports that no node could answer; nothing was done.
func IsUnavailable(err error) bool { return CodeOf(err) == connect.CodeUnavailable }

// OutcomeUnknown reports that the command may or may not have taken effect:
// sending it again with the same id, and when it was first tried, tells. After
// CodeAborted nothing does but a look at the entity: it has forgotten.
func OutcomeUnknown(err error) bool {
	if err == nil {
		return false
	}
	switch CodeOf(err) {
	case connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeUnknown, connect.CodeAborted:
		return true
	}
	return false
}

// settled reports whether an answer with this code says what became of a
// command in every attempt, not in the last one alone: a node looks a command
// id up before it decides, but refuses for want of room before it looks. A
// rejection does not say it: nothing of it is written, so an attempt that waits
// in a node that was frozen or cut off is decided anew when it comes through.
func settled(code connect.Code) bool {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeUnimplemented, connect.CodeAborted:
		return true
	}
	return false
}

// attemptFailure is what a failed attempt means for the call.
type attemptFailure struct {
	code    connect.Code
	message string
	// retry: another attempt may do better.
	retry bool
	// carried: the request may have reached a node that did not say what
	// became of it.
	carried bool
}

// judge looks at why an attempt failed. Failures on the way to a node have
// codes that the RPC layer made up, some of them those of definite outcomes:
// only what a node has said counts as one.
func judge(err error) attemptFailure {
	if other := (*OtherClusterError)(nil); errors.As(err, &other) {
		return attemptFailure{code: other.code(), message: other.Error(), retry: !other.all, carried: !other.refused}
	}
	f := attemptFailure{code: connect.CodeOf(err), message: err.Error()}
	if wire := (*connect.Error)(nil); errors.As(err, &wire) {
		f.message = wire.Message()
	}
	if !connect.IsWireError(err) {
		dial := (*net.OpError)(nil)
		if errors.As(err, &dial) && dial.Op == "dial" {
			return attemptFailure{code: connect.CodeUnavailable, message: f.message, retry: true}
		}
		if untrusted := (*tls.CertificateVerificationError)(nil); errors.As(err, &untrusted) {
			return attemptFailure{code: connect.CodeUnavailable, message: untrusted.Error(), retry: true}
		}
		f.retry = f.code != connect.CodeInvalidArgument && f.code != connect.CodeResourceExhausted && f.code != connect.CodeUnimplemented
		f.carried = true
		if f.code != connect.CodeDeadlineExceeded && f.code != connect.CodeCanceled && f.retry {
			f.code = connect.CodeUnknown
		}
		return f
	}
	switch f.code {
	case connect.CodeUnavailable:
		f.retry = true
	case connect.CodeDeadlineExceeded, connect.CodeUnknown, connect.CodeCanceled:
		f.retry, f.carried = true, true
	}
	return f
}

// typed turns an error of the RPC layer into one of this package.
func typed(err error) error {
	if other := (*OtherClusterError)(nil); errors.As(err, &other) {
		return other
	}
	var wire *connect.Error
	var wait time.Duration
	var reason string
	if errors.As(err, &wire) {
		for _, d := range wire.Details() {
			value, err := d.Value()
			if err != nil {
				continue
			}
			switch m := value.(type) {
			case *entityv1.Rejection:
				return &RejectedError{Code: m.GetCode(), Message: m.GetMessage()}
			case *entityv1.SequenceMismatch:
				return &SequenceMismatchError{Actual: m.GetActual()}
			case *entityv1.EventsCut:
				return &CutError{First: m.GetFirst(), Message: wire.Message()}
			case *errdetails.RetryInfo:
				wait = m.GetRetryDelay().AsDuration()
			case *errdetails.ErrorInfo:
				reason = m.GetReason()
			}
		}
	}
	f := judge(err)
	return &Error{Code: f.code, Message: f.message, RetryAfter: wait, Reason: reason}
}

// unsettled is the failure of a command that an earlier attempt may have
// carried out, or may yet.
func unsettled(last error) error {
	var rejected *RejectedError
	var other *OtherClusterError
	if CodeOf(last) == connect.CodeFailedPrecondition && !errors.As(last, &rejected) && !errors.As(last, &other) {
		return last // sequences only grow: what did not match does not later either
	}
	e := &Error{Code: connect.CodeUnknown, Message: "an earlier attempt may have taken effect; the last one: " + last.Error()}
	if errors.As(last, &other) {
		e.other = other
	}
	return e
}
