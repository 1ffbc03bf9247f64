// Package verified decides whether a module may serve an entity type after what
// came of verifying it with the entities that there are. It is pure.
package verified

import (
	"fmt"
	"time"

	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
)

// Required is what a type asks for before another module serves it.
type Required string

// What a type may ask for.
const (
	Off    Required = "off"    // nothing; the zero value is the same
	Sample Required = "sample" // that some entities were replayed, or all
	All    Required = "all"    // that all were
)

// Known reports whether it is one of those.
func (r Required) Known() bool { return r == Off || r == Sample || r == All }

// Result is what came of replaying entities with a module and with the one that
// served their type, under the binding's revision then.
type Result struct {
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

// Kept is what is kept of a type and a module.
type Kept struct {
	Required Required
	Revision uint64  // that serves the type
	Result   *Result // nil: the module was not verified
}

// Refusal says why the module may not serve the type, nil where it may. accept
// takes other states for what is meant.
func (k Kept) Refusal(entityType string, accept bool) *status.RefusedError {
	r := k.Result
	if k.Required == Off || k.Required == "" {
		return nil
	}
	next := "hostd module verify " + entityType + " DIGEST"
	if k.Required == All {
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
	case k.Required == All && !r.All:
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
