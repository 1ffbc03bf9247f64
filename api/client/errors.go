package client

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

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

// Error is any other failure that a node, or the way to it, reported.
type Error struct {
	Code    connect.Code
	Message string
}

func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }

// ErrClosed is returned by a Stream that is closed.
var ErrClosed = errors.New("the stream is closed")

// CodeOf returns the code of an error of this package: failed_precondition for
// the typed ones, unknown for errors that are not of this package.
func CodeOf(err error) connect.Code {
	var rejected *RejectedError
	var mismatch *SequenceMismatchError
	var other *Error
	switch {
	case errors.As(err, &other):
		return other.Code
	case errors.As(err, &rejected), errors.As(err, &mismatch):
		return connect.CodeFailedPrecondition
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

// IsUnavailable reports that no node could answer; nothing was done.
func IsUnavailable(err error) bool { return CodeOf(err) == connect.CodeUnavailable }

// OutcomeUnknown reports that the command may or may not have taken effect:
// sending it again with the same id tells.
func OutcomeUnknown(err error) bool {
	switch CodeOf(err) {
	case connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeUnknown:
		return true
	}
	return false
}

// retryable reports whether another attempt with the same command id may do
// better: no leader, no connection, or an outcome that is not known yet.
func retryable(code connect.Code) bool {
	return code == connect.CodeUnavailable || code == connect.CodeDeadlineExceeded || code == connect.CodeUnknown
}

// typed turns an error of the RPC layer into one of this package.
func typed(err error) error {
	var wire *connect.Error
	if !errors.As(err, &wire) {
		return err
	}
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
		}
	}
	return &Error{Code: wire.Code(), Message: wire.Message()}
}
