// Package modulecheck checks a module against the guest contract without a
// node: it validates, compiles and starts it as a node would, and runs the
// conformance suite on it. It writes no file, and starts no goroutine that
// outlives a call.
package modulecheck

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/guest"
)

// Next is the suggested next step for a module that fails.
const Next = "abi/ABI.md defines the exports, imports and behaviour of a module."

// Report is the printed result of a module check.
type Report struct {
	Digest      string   `json:"digest"`
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	EntityTypes []string `json:"entityTypes"`
	SizeBytes   int      `json:"sizeBytes"`
	Functions   int      `json:"functions"`
	LargestBody int      `json:"largestBodyBytes"`
	MemoryBytes int64    `json:"memoryBytes"` // memory of a new instance
	Imports     []string `json:"imports"`
	Checks      []Line   `json:"checks"`
}

// Line is one check of a report.
type Line struct {
	Name       string `json:"name"`
	EntityType string `json:"entityType,omitempty"`
	Status     string `json:"status"`
	Detail     string `json:"detail,omitempty"`
}

// Count returns how many checks have a status.
func (v Report) Count(status abitest.Status) (n int) {
	for _, c := range v.Checks {
		if c.Status == string(status) {
			n++
		}
	}
	return n
}

func (v Report) write(w io.Writer) {
	cli.Table(w, "MODULE\t"+v.Digest, func(row func(...any)) {
		row("name", strings.TrimSpace(v.Name+" "+v.Version))
		row("entity types", strings.Join(v.EntityTypes, ", "))
		row("size", fmt.Sprintf("%d bytes, %d functions, the largest of %d bytes", v.SizeBytes, v.Functions, v.LargestBody))
		row("new instance", fmt.Sprintf("%d bytes of memory", v.MemoryBytes))
		row("imports", strings.Join(v.Imports, ", "))
	})
	fmt.Fprintln(w)
	cli.Table(w, "STATUS\tTYPE\tCHECK\tDETAIL", func(row func(...any)) {
		for _, c := range v.Checks {
			row(c.Status, c.EntityType, c.Name, c.Detail)
		}
	})
}

// Run validates, compiles and starts the module as a node would, and runs the
// conformance suite on it.
func Run(ctx context.Context, wasm []byte, options abitest.Options) (v Report, err error) {
	e, err := guest.New(ctx, guest.Options{TellFaults: true})
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	description, err := e.Admit(wasm)
	if err != nil {
		return v, err
	}
	digest := sha256.Sum256(wasm)
	m, err := e.Compile(ctx, digest, wasm)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := guest.CheckSchemas(m.Manifest()); err != nil {
		return v, fmt.Errorf("module refused: %w", err)
	}
	g, err := m.Instantiate(ctx)
	if err != nil {
		return v, err
	}
	v = Report{
		Digest: hex.EncodeToString(digest[:]), Name: m.Manifest().Name, Version: m.Manifest().Version, SizeBytes: description.Bytes,
		Functions: description.Functions, LargestBody: description.LargestBody, MemoryBytes: g.MemoryBytes(), Imports: description.Imports,
	}
	if err := g.Close(); err != nil {
		return v, err
	}
	for _, t := range m.Manifest().EntityTypes {
		v.EntityTypes = append(v.EntityTypes, t.Name)
	}
	report, err := abitest.Run(ctx, guestOpener{m}, options)
	if err != nil {
		return v, err
	}
	for _, c := range report.Checks {
		v.Checks = append(v.Checks, Line{c.Name, c.EntityType, string(c.Status), c.Detail})
	}
	return v, nil
}

// guestOpener adapts a compiled module to the conformance suite.
type guestOpener struct{ module *guest.Module }

func (o guestOpener) Describe() ([]byte, error) { return json.Marshal(o.module.Manifest()) }

// Open gives each instance its own clock and random numbers, so that a state
// that depends on either is detected.
func (o guestOpener) Open(ctx context.Context, seed uint64) (abitest.Instance, error) {
	const second = 1e9
	g, err := o.module.InstantiateVaried(ctx, second*int64(1+seed%(1<<30)), seed)
	if err != nil {
		return nil, err
	}
	return guestInstance{g}, nil
}

type guestInstance struct{ *guest.Instance }

func (g guestInstance) Handle(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return g.Instance.Handle(handle, frames, guest.Env{Now: env.Now, Seed: env.Seed})
}

func (g guestInstance) Query(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return g.Instance.Query(handle, frames, guest.Env{Now: env.Now, Seed: env.Seed})
}
