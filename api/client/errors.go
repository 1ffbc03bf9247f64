package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
)

// RejectedError means that the module's handler rejected the command or query.
// Nothing was written.
type RejectedError struct{ Code, Message string }

func (e *RejectedError) Error() string {
	if e.Message == "" {
		return "rejected: " + e.Code
	}
	return fmt.Sprintf("rejected: %s: %s", e.Code, e.Message)
}

// SequenceMismatchError means that the entity was not at the expected sequence.
// Nothing was written.
type SequenceMismatchError struct{ Actual uint64 }

func (e *SequenceMismatchError) Error() string {
	return fmt.Sprintf("the entity is at sequence %d", e.Actual)
}

// TruncatedError means that the requested events were truncated, because the
// entity type does not retain them. Retrying fails again.
type TruncatedError struct {
	First   uint64 // the entity's first retained event
	Message string
}

func (e *TruncatedError) Error() string { return connect.CodeOutOfRange.String() + ": " + e.Message }

// OtherClusterError means that the node at an address belongs to a different
// cluster than the nodes that answered this client before. Either two clusters
// share a DNS name, the list of addresses is wrong, or the cluster was
// bootstrapped again. In the last case, make a new Client.
type OtherClusterError struct {
	Address         string // host:port
	Cluster, Wanted string // ids of the node's and of the client's cluster
	refused         bool   // the call named its cluster, so the node rejected it without running it
	all             bool   // no other address is left
}

func (e *OtherClusterError) Error() string {
	return fmt.Sprintf("the node at %s belongs to cluster %s, but the other nodes to %s", e.Address, e.Cluster, e.Wanted)
}

func (e *OtherClusterError) code() connect.Code {
	if e.refused {
		return connect.CodeFailedPrecondition
	}
	return connect.CodeUnknown
}

// Violation is an invalid field of a request or payload.
type Violation struct {
	Field       string `json:"field"` // path of the field; empty for the whole payload
	Description string `json:"description"`
}

// Error is any other failure that a node or the network reported.
type Error struct {
	Code    Code
	Message string
	// RetryAfter is how long the node asks to wait before the next attempt; 0
	// if it does not say.
	RetryAfter time.Duration
	// Reason identifies the failure for programs, such as KIND_CHANGED; it may
	// be empty.
	Reason string
	// Violations are the invalid fields of the request or its payload; at most
	// as many as the node reports.
	Violations []Violation

	other error // an *OtherClusterError or nil
}

// Unwrap returns the *OtherClusterError with which the last attempt ended, if
// an earlier attempt makes the outcome unknown. Otherwise it returns nil.
func (e *Error) Unwrap() error { return e.other }

func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }

// ErrClosed is returned by the methods of a closed Stream.
var ErrClosed = errors.New("the stream is closed")

// CodeOf returns the code of an error: failed_precondition for the typed errors
// of this package, unknown for errors of other packages.
func CodeOf(err error) Code {
	var rejected *RejectedError
	var mismatch *SequenceMismatchError
	var cut *TruncatedError
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

// IsNotFound reports whether the entity type, command, query or module does not
// exist.
func IsNotFound(err error) bool { return CodeOf(err) == connect.CodeNotFound }

// HistoryLost reports whether a cursor belongs to a history that the cluster no
// longer has, because a data directory was restored or a shard was recovered
// without its newest events. Discard all data derived from the events and
// subscribe without a cursor, because some of the events no longer exist.
func HistoryLost(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Reason == "CURSOR_HISTORY_LOST"
}

// IsUnavailable reports whether no node could answer. The call had no effect.
func IsUnavailable(err error) bool { return CodeOf(err) == connect.CodeUnavailable }

// OutcomeUnknown reports whether the command may or may not have taken effect.
// To find out, send it again with the same id and the time of the first
// attempt. After CodeAborted, read the entity instead, because it has forgotten
// the id.
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

// settlesOutcome reports whether an answer with this code settles the
// outcome of every attempt, not only of the last attempt. A node looks up a
// command id before it decides, but it rejects a command for lack of
// capacity before that look-up. A rejection by the handler does not settle
// earlier attempts, because it is not written. An earlier attempt that waits
// in a node that was frozen or partitioned is decided again when it arrives.
func settlesOutcome(code connect.Code) bool {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeUnimplemented, connect.CodeAborted:
		return true
	}
	return false
}

// attemptFailure is the consequence of a failed attempt for the call.
type attemptFailure struct {
	code    connect.Code
	message string
	// retry means that another attempt may succeed.
	retry bool
	// carried means that the request may have reached a node that did not
	// report the outcome.
	carried bool
}

// fieldPath formats the path of a field of a request, such as items[2].name.
func fieldPath(path *validate.FieldPath) string {
	var out strings.Builder
	for _, e := range path.GetElements() {
		if out.Len() > 0 {
			out.WriteByte('.')
		}
		out.WriteString(e.GetFieldName())
		switch key := e.GetSubscript().(type) {
		case *validate.FieldPathElement_Index:
			fmt.Fprintf(&out, "[%d]", key.Index)
		case *validate.FieldPathElement_StringKey:
			fmt.Fprintf(&out, "[%q]", key.StringKey)
		case nil:
		default:
			out.WriteString("[]")
		}
	}
	return out.String()
}

// judge classifies the failure of an attempt. The RPC layer generates codes for
// network failures, and some of these look like definite outcomes. Therefore
// only an error that a node sent counts as a definite outcome.
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

// FromConnect converts the error of a call through the generated code to the
// error that a method of Client returns: a *RejectedError,
// *SequenceMismatchError, *TruncatedError, *OtherClusterError or *Error.
func FromConnect(err error) error { return clientError(err) }

// formerTruncated is the name of entityv1.EventsTruncated in the previous release,
// which has the same fields.
const formerTruncated = "hostd.entity.v1.EventsCut"

// detailOf decodes a detail of an error of a node.
func detailOf(d *connect.ErrorDetail) (proto.Message, error) {
	if d.Type() == formerTruncated {
		m := new(entityv1.EventsTruncated)
		return m, proto.Unmarshal(d.Bytes(), m)
	}
	return d.Value()
}

// clientError converts an error of the RPC layer to an error of this package.
func clientError(err error) error {
	if other := (*OtherClusterError)(nil); errors.As(err, &other) {
		return other
	}
	var wire *connect.Error
	var wait time.Duration
	var reason string
	var violations []Violation
	if errors.As(err, &wire) {
		for _, d := range wire.Details() {
			value, err := detailOf(d)
			if err != nil {
				continue
			}
			switch m := value.(type) {
			case *entityv1.Rejection:
				return &RejectedError{Code: m.GetCode(), Message: m.GetMessage()}
			case *entityv1.SequenceMismatch:
				return &SequenceMismatchError{Actual: m.GetActual()}
			case *entityv1.EventsTruncated:
				return &TruncatedError{First: m.GetFirst(), Message: wire.Message()}
			case *errdetails.RetryInfo:
				wait = m.GetRetryDelay().AsDuration()
			case *errdetails.ErrorInfo:
				reason = m.GetReason()
			case *errdetails.BadRequest:
				for _, v := range m.GetFieldViolations() {
					violations = append(violations, Violation{v.GetField(), v.GetDescription()})
				}
			case *validate.Violations:
				for _, v := range m.GetViolations() {
					violations = append(violations, Violation{fieldPath(v.GetField()), v.GetMessage()})
				}
			}
		}
	}
	f := judge(err)
	return &Error{Code: f.code, Message: f.message, RetryAfter: wait, Reason: reason, Violations: violations}
}

// unknownOutcome returns the failure of a command that an earlier attempt may have
// run, or may still run.
func unknownOutcome(last error) error {
	var rejected *RejectedError
	var other *OtherClusterError
	if CodeOf(last) == connect.CodeFailedPrecondition && !errors.As(last, &rejected) && !errors.As(last, &other) {
		return last // sequences only grow, so a mismatch remains a mismatch
	}
	e := &Error{Code: connect.CodeUnknown, Message: "an earlier attempt may have taken effect; the last attempt: " + last.Error()}
	if errors.As(last, &other) {
		e.other = other
	}
	return e
}
