package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/schema"
)

// checkView is what check found out about a module, as it is printed.
type checkView struct {
	Digest      string      `json:"digest"`
	Name        string      `json:"name"`
	Version     string      `json:"version"`
	EntityTypes []string    `json:"entityTypes"`
	SizeBytes   int         `json:"sizeBytes"`
	Functions   int         `json:"functions"`
	LargestBody int         `json:"largestBodyBytes"`
	MemoryBytes int64       `json:"memoryBytes"` // of a new instance
	Imports     []string    `json:"imports"`
	Checks      []checkLine `json:"checks"`
}

type checkLine struct {
	Name       string `json:"name"`
	EntityType string `json:"entityType,omitempty"`
	Status     string `json:"status"`
	Detail     string `json:"detail,omitempty"`
}

func newModuleCheck(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var samples string
	var seed uint64
	c := cli.Leaf("check FILE.wasm", "Run the conformance suite on a module; no node is needed", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		options := abitest.Options{Seed: seed}
		if samples != "" {
			var err error
			if options.Samples, err = readSamples(samples); err != nil {
				return err
			}
		}
		wasm, err := cli.ReadModule(args[0])
		if err != nil {
			return err
		}
		const next = "abi/ABI.md says what a module must export, may import and must keep to."
		v, err := checkModule(ctx, wasm, options)
		if err != nil {
			return cli.Hint(fmt.Errorf("%s: %w", args[0], err), next)
		}
		if err := out.Print(v, v.write); err != nil {
			return err
		}
		if failed := v.count(abitest.Failed); failed > 0 {
			return cli.Hint(fmt.Errorf("%s: %d of %d checks failed", args[0], failed, len(v.Checks)), next)
		}
		if skipped := v.count(abitest.Skipped); skipped > 0 {
			fmt.Fprintf(std.Err, "the module keeps the contract as far as it could be looked at: %d of %d checks were skipped, for the reasons above; --samples gives payloads that it accepts\n", skipped, len(v.Checks))
			return nil
		}
		fmt.Fprintln(std.Err, "the module keeps the contract")
		return nil
	})
	c.Long = "Admits, compiles and starts the module as a node would, then runs the conformance suite: it sends commands, replays the " +
		"events in other instances with other clocks, seeds and batches, and demands the same state, byte for byte."
	c.Flags().StringVar(&samples, "samples", "", "JSON `file` of payloads to send: an object of types, each an object of commands and queries, each a list; drawn of the schemas or guessed without it")
	c.Flags().Uint64Var(&seed, "seed", 1, "of everything that the suite chooses: the same `number` is the same run")
	out = cli.AddOutput(c, std)
	return c
}

func readSamples(path string) (abitest.Samples, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file map[string]map[string][]json.RawMessage
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, cli.Hint(fmt.Errorf("%s: %w", path, err), `It looks like {"counter":{"add":[{"amount":1}]}}.`)
	}
	samples := abitest.Samples{}
	for entityType, names := range file {
		samples[entityType] = map[string][][]byte{}
		for name, payloads := range names {
			for _, p := range payloads {
				samples[entityType][name] = append(samples[entityType][name], p)
			}
		}
	}
	return samples, nil
}

func (v checkView) count(status abitest.Status) (n int) {
	for _, c := range v.Checks {
		if c.Status == string(status) {
			n++
		}
	}
	return n
}

func (v checkView) write(w io.Writer) {
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

// checkModule admits, compiles and starts the module as a node would, and runs
// the conformance suite on it.
func checkModule(ctx context.Context, wasm []byte, options abitest.Options) (v checkView, err error) {
	e, err := engine.New(ctx, engine.Options{})
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
	if err := schema.Check(m.Manifest()); err != nil {
		return v, fmt.Errorf("module refused: %w", err)
	}
	g, err := m.Instantiate(ctx)
	if err != nil {
		return v, err
	}
	v = checkView{
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
		v.Checks = append(v.Checks, checkLine{c.Name, c.EntityType, string(c.Status), c.Detail})
	}
	return v, nil
}

// guestOpener puts a compiled module under the conformance suite.
type guestOpener struct{ module *engine.Module }

func (o guestOpener) Describe() ([]byte, error) { return json.Marshal(o.module.Manifest()) }

// Open gives each instance a clock and a random stream of its own, so that a
// state that depends on either shows.
func (o guestOpener) Open(ctx context.Context, seed uint64) (abitest.Instance, error) {
	const second = 1e9
	g, err := o.module.InstantiateVaried(ctx, second*int64(1+seed%(1<<30)), seed)
	if err != nil {
		return nil, err
	}
	return guestInstance{g}, nil
}

type guestInstance struct{ *engine.Instance }

func (g guestInstance) Handle(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return g.Instance.Handle(handle, frames, engine.Env{Now: env.Now, Seed: env.Seed})
}

func (g guestInstance) Query(handle uint64, frames []byte, env abitest.Env) ([]byte, error) {
	return g.Instance.Query(handle, frames, engine.Env{Now: env.Now, Seed: env.Seed})
}
