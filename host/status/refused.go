package status

import (
	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
)

// Names of refusals, which callers find in a google.rpc.ErrorInfo.
const (
	// RefusedKind: a module declares another kind or encoding of a type.
	RefusedKind = "KIND_CHANGED"
	// RefusedEvents: a module does not list a type of events that is stored.
	RefusedEvents = "INCOMPATIBLE_EVENTS"
	// RefusedFault: a module fails on an entity that there is.
	RefusedFault = "VERIFY_FAILED"
	// RefusedUnverified: the type asks for a verification that there is not.
	RefusedUnverified = "VERIFY_REQUIRED"
)

// RefusedError says why an operation cannot be carried out as things are.
type RefusedError struct {
	Reason string // for people
	Name   string // for programs; may be empty
	// About is what the reason names, for programs.
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

// ErrNoMajority: too few other nodes can be reached for what was asked.
// Retry after a moment.
var ErrNoMajority = New(connect.CodeUnavailable, "not enough nodes of the cluster can be reached for this; retry after a moment")

// ErrAdminOff: the configuration of the node does not let callers change the
// cluster. A retry at a node whose configuration does may succeed.
var ErrAdminOff = New(connect.CodePermissionDenied, "this node lets nobody change the cluster; set 'admin: full' in its configuration, or ask a node that has it")
