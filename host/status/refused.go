package status

import (
	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
)

// Reasons of rejections, which callers find in a google.rpc.ErrorInfo.
const (
	// RefusedKind: a module declares a different kind or encoding for a type.
	RefusedKind = "KIND_CHANGED"
	// RefusedEvents: a module does not list an event type that is stored.
	RefusedEvents = "INCOMPATIBLE_EVENTS"
	// RefusedFault: a module fails on an existing entity.
	RefusedFault = "VERIFY_FAILED"
	// RefusedUnverified: the type requires a verification, and the module has
	// none.
	RefusedUnverified = "VERIFY_REQUIRED"
)

// RefusedError says why the current state does not allow an operation.
type RefusedError struct {
	Reason string // text for people
	Name   string // name for programs; may be empty
	// About has the names and values in Reason, for programs.
	About map[string]string
}

func (e *RefusedError) Error() string { return e.Reason }

// Code implements status.Coded.
func (e *RefusedError) Code() connect.Code { return connect.CodeFailedPrecondition }

// Detail implements status.Detailed.
func (e *RefusedError) Detail() proto.Message {
	if e.Name == "" {
		return nil
	}
	return &errdetails.ErrorInfo{Reason: e.Name, Domain: errorDomain, Metadata: e.About}
}

// ErrNoMajority: too few other nodes are reachable for the operation. Retry
// after a moment.
var ErrNoMajority = New(connect.CodeUnavailable, "not enough nodes of the cluster are reachable for this; retry after a moment")

// ErrAdminOff: the node's configuration does not let callers change the cluster.
// A retry at a node whose configuration does may succeed.
var ErrAdminOff = New(connect.CodePermissionDenied, "this node rejects calls that change the cluster; set 'admin: full' in its configuration, or call a node that has it")
