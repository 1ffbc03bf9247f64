package modules

import (
	"fmt"
	"time"

	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
)

// VerifyRequired is the verification that a type requires before another module
// serves it.
type VerifyRequired string

// Values of VerifyRequired.
const (
	VerifyOff    VerifyRequired = "off"    // no verification; also the zero value
	VerifySample VerifyRequired = "sample" // verification of a sample of the entities, or of all entities
	VerifyAll    VerifyRequired = "all"    // verification of all entities
)

// IsValid reports whether r is one of these values.
func (r VerifyRequired) IsValid() bool { return r == VerifyOff || r == VerifySample || r == VerifyAll }

// VerifyResult is the result of replaying entities with a module and with the
// module that served their type under the given revision.
type VerifyResult struct {
	Digest   journal.Digest
	Revision uint64
	At       time.Time
	By       string // principal that requested it; empty if nodes do not authenticate
	All      bool   // covers every entity instead of a sample
	Entities uint64 // replayed entities
	Events   uint64
	// Numbers of entities for which the module computes a different state, on
	// which it fails, and which could not be compared.
	Differences, Faults, Uncompared uint64
	Truncated                       uint64 // entities that were not replayed, because their first events are gone
}

// StoredVerification is the information in the metadata about the verification
// of a module for a type.
type StoredVerification struct {
	Required VerifyRequired
	Revision uint64        // revision under which the type is served
	Result   *VerifyResult // nil if the module was not verified
}

// Refusal returns the reason why the module may not serve the type, or nil if
// it may. If accept is true, differing states count as intended.
func (k StoredVerification) Refusal(entityType string, accept bool) *status.RefusedError {
	r := k.Result
	if k.Required == VerifyOff || k.Required == "" {
		return nil
	}
	next := "hostd module verify " + entityType + " DIGEST"
	if k.Required == VerifyAll {
		next += " --all"
	}
	refused := func(name, format string, args ...any) *status.RefusedError {
		return &status.RefusedError{Reason: entityType + ": " + fmt.Sprintf(format, args...), Name: name, About: map[string]string{"entityType": entityType, "required": string(k.Required)}}
	}
	switch {
	case r == nil:
		return refused(status.RefusedUnverified, "the module was not verified: %s", next)
	case r.Revision != k.Revision:
		return refused(status.RefusedUnverified, "the module was verified under revision %d, but the type is served under revision %d: %s", r.Revision, k.Revision, next)
	case k.Required == VerifyAll && !r.All:
		return refused(status.RefusedUnverified, "only a sample of the entities was verified, but all are required: %s", next)
	case r.Faults > 0:
		return refused(status.RefusedFault, "the module fails on %d of %d verified entities", r.Faults, r.Entities)
	case r.Entities == 0 && r.Truncated > 0:
		return refused(status.RefusedFault, "no entity could be verified: all %d have truncated events", r.Truncated)
	case r.Differences > 0 && !accept:
		return refused(status.RefusedFault, "the module computes a different state for %d of %d verified entities; if that is intended, accept the differences", r.Differences, r.Entities)
	}
	return nil
}
