// Package abitest is the conformance suite of the guest contract: it tests the
// behaviour that a host requires of every module, and reports the result of
// each check.
//
// The suite acts as the host. It sends random commands to several entities of
// one instance and stores what a node would store. It then rebuilds the entities
// from events and snapshots in instances with other seeds and in other batches,
// and compares their states byte by byte: a guest whose state depends on the
// clock, on random numbers, on the order of a map or on the other entities of
// its instance fails. Further checks send input that later hosts may send, such
// as frames of unknown kinds and damaged snapshots.
//
// It knows no Wasm runtime: a module is an Opener of instances whose calls accept
// and return frames. It starts no goroutine; Run makes one call at a time, on
// the goroutine of its caller.
package abitest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
)

// Env is the environment of a guest during a command or query.
type Env struct {
	Now  int64 // unix nanoseconds
	Seed uint64
}

// Opener makes instances of one module.
type Opener interface {
	// Describe returns the text of the manifest.
	Describe() ([]byte, error)
	// Open makes an instance whose clock and random numbers, outside of handle
	// and query, are derived from seed. Two instances with different seeds must
	// still agree on every state.
	Open(ctx context.Context, seed uint64) (Instance, error)
}

// Instance is one guest. A result is valid until the next call. An error is a
// fault of the guest (a trap, a span outside memory, an unknown status), after
// which the instance may only be closed.
type Instance interface {
	Load(typ uint32, handle uint64, frames []byte) (abi.LoadStatus, error)
	Apply(handle uint64, frames []byte) error
	Handle(handle uint64, frames []byte, env Env) ([]byte, error)
	Query(handle uint64, frames []byte, env Env) ([]byte, error)
	Snapshot(handle uint64) ([]byte, error)
	Drop(handle uint64) error
	Close() error
}

// Upcaster is an Instance of a module that may have hostd_upcast. Upcast passes
// it one event frame and returns its result, which is valid until the next
// call.
type Upcaster interface {
	Upcasts() bool
	Upcast(typ uint32, frame []byte) ([]byte, error)
}

// Samples are payloads to use in tests, by entity type and then by command or
// query.
type Samples map[string]map[string][][]byte

// Options of Run.
type Options struct {
	Seed     uint64     // seed of all random choices; the same seed repeats the same run
	Commands int        // commands per entity; 60 when 0
	Entities int        // entities of a type in one instance; 3 when 0
	Samples  Samples    // without samples, payloads are guessed
	Limits   abi.Limits // abi.DefaultLimits when zero
}

// Status of a check.
type Status string

// Statuses.
const (
	Passed  Status = "passed"
	Failed  Status = "failed"
	Skipped Status = "skipped" // Detail says why
)

// Check is the result of one check.
type Check struct {
	Name       string
	EntityType string // empty if the check concerns the whole module
	Status     Status
	Detail     string // the first fault, or why the check was skipped
}

// Report is the result of Run.
type Report struct {
	Manifest *manifest.Manifest // nil if it could not be read
	Checks   []Check
}

// OK reports whether no check failed.
func (r *Report) OK() bool {
	for i := range r.Checks {
		if r.Checks[i].Status == Failed {
			return false
		}
	}
	return true
}

// String returns one line per check.
func (r *Report) String() string {
	var text strings.Builder
	for _, c := range r.Checks {
		name := c.Name
		if c.EntityType != "" {
			name = c.EntityType + "/" + name
		}
		fmt.Fprintf(&text, "%-7s %s", c.Status, name)
		if c.Detail != "" {
			text.WriteString(": " + c.Detail)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// Run runs the suite on a module. It returns an error only if ctx ends or if an
// instance cannot be opened for a reason that is not the module's fault; faults
// of the module are in the report.
func Run(ctx context.Context, module Opener, options Options) (*Report, error) {
	if options.Commands == 0 {
		options.Commands = 60
	}
	if options.Entities == 0 {
		options.Entities = 3
	}
	if options.Limits == (abi.Limits{}) {
		options.Limits = abi.DefaultLimits()
	}
	report := &Report{}
	s := &suite{ctx: ctx, module: module, options: options, report: report}
	if s.check("describe", "", s.describe) {
		for i := range report.Manifest.EntityTypes {
			t := &typeSuite{suite: s, typ: uint32(i), def: &report.Manifest.EntityTypes[i]}
			t.compileForms()
			t.run()
		}
	}
	return report, ctx.Err()
}

type suite struct {
	ctx     context.Context
	module  Opener
	options Options
	report  *Report
}

// skip is returned by a check that could not run.
type skip string

func (s skip) Error() string { return string(s) }

// check runs one check and records its result.
func (s *suite) check(name, entityType string, run func() error) bool {
	if s.ctx.Err() != nil {
		return false
	}
	c := Check{Name: name, EntityType: entityType, Status: Passed}
	err := run()
	if reason, skipped := errors.AsType[skip](err); skipped {
		c.Status, c.Detail = Skipped, string(reason)
	} else if err != nil {
		c.Status, c.Detail = Failed, err.Error()
	}
	if s.ctx.Err() == nil {
		s.report.Checks = append(s.report.Checks, c)
	}
	return err == nil
}

// describe reads the manifest twice, because it must be the same each time.
func (s *suite) describe() error {
	first, err := s.module.Describe()
	if err != nil {
		return err
	}
	text := string(first)
	if len(text) > s.options.Limits.ManifestBytes {
		return fmt.Errorf("the manifest has %d bytes, limit %d", len(text), s.options.Limits.ManifestBytes)
	}
	s.report.Manifest, err = manifest.Parse(first)
	if err != nil {
		return err
	}
	second, err := s.module.Describe()
	if err != nil {
		return err
	}
	if text != string(second) {
		return errors.New("the manifest is not the same twice")
	}
	return nil
}

// random returns a separate random sequence for each purpose, so that the
// checks do not depend on how many numbers another check draws.
func (s *suite) random(purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(s.options.Seed, purpose))
}
