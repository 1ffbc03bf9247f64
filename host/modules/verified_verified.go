package modules

import (
	"fmt"
	"time"

	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
)

// VerifyRequired is what a type asks for before another module serves it.
type VerifyRequired string

// What a type may ask for.
const (
	VerifyOff    VerifyRequired = "off"    // nothing; the zero value is the same
	VerifySample VerifyRequired = "sample" // that some entities were replayed, or all
	VerifyAll    VerifyRequired = "all"    // that all were
)

// Known reports whether it is one of those.
func (r VerifyRequired) Known() bool { return r == VerifyOff || r == VerifySample || r == VerifyAll }

// VerifyResult is what came of replaying entities with a module and with the one that
// served their type, under the binding's revision then.
type VerifyResult struct {
	Digest   journal.Digest
	Revision uint64
	At       time.Time
	By       string // who had it done; empty where nodes ask nobody
	All      bool   // every entity, rather than a sample
	Entities uint64 // that were replayed
	Events   uint64
	// Of the entities, those of which the module makes another state, those on
	// which it fails, and those of which there was nothing to compare with.
	Differences, Faults, Uncompared uint64
	Cut                             uint64 // entities that were not replayed
}

// KeptVerification is what is kept of a type and a module.
type KeptVerification struct {
	Required VerifyRequired
	Revision uint64        // that serves the type
	Result   *VerifyResult // nil: the module was not verified
}

// Refusal says why the module may not serve the type, nil where it may. accept
// takes other states for what is meant.
func (k KeptVerification) Refusal(entityType string, accept bool) *status.RefusedError {
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
		return refused(status.RefusedUnverified, "the module was verified under revision %d, and the type is served under %d: %s", r.Revision, k.Revision, next)
	case k.Required == VerifyAll && !r.All:
		return refused(status.RefusedUnverified, "a sample of the entities was verified, and all are asked for: %s", next)
	case r.Faults > 0:
		return refused(status.RefusedFault, "the module fails on %d of %d entities that were verified", r.Faults, r.Entities)
	case r.Entities == 0 && r.Cut > 0:
		return refused(status.RefusedFault, "no entity could be verified: of %d the first events were cut", r.Cut)
	case r.Differences > 0 && !accept:
		return refused(status.RefusedFault, "of %d of %d entities that were verified the module makes another state; where that is meant, accept the differences", r.Differences, r.Entities)
	}
	return nil
}
