package rpc

import "github.com/hostd/hostd/host/rpc/status"

// RefusedError says why an operation cannot be carried out as things are.
type RefusedError = status.RefusedError

// Names of refusals.
const (
	RefusedKind   = status.RefusedKind
	RefusedEvents = status.RefusedEvents
	RefusedFault  = status.RefusedFault

	RefusedUnverified = status.RefusedUnverified
)
