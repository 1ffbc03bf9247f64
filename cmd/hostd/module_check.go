package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/host/engine"
)

// checkView is what check found out about a module, as it is printed.
type checkView struct {
	Digest      string   `json:"digest"`
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	EntityTypes []string `json:"entityTypes"`
	SizeBytes   int      `json:"sizeBytes"`
	Functions   int      `json:"functions"`
	LargestBody int      `json:"largestBodyBytes"`
	MemoryBytes int64    `json:"memoryBytes"` // of a new instance
	Imports     []string `json:"imports"`
}

func newModuleCheck(std stdio) *cobra.Command {
	var out *output
	c := leaf("check FILE.wasm", "Check a module against the guest contract; no node is needed", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		wasm, err := readModule(args[0])
		if err != nil {
			return err
		}
		v, err := checkModule(ctx, wasm)
		if err != nil {
			return hint(fmt.Errorf("%s: %w", args[0], err), "abi/ABI.md says what a module must export and may import.")
		}
		err = out.print(v, func(w io.Writer) {
			table(w, "MODULE\t"+v.Digest, func(row func(...any)) {
				row("name", strings.TrimSpace(v.Name+" "+v.Version))
				row("entity types", strings.Join(v.EntityTypes, ", "))
				row("size", fmt.Sprintf("%d bytes, %d functions, the largest of %d bytes", v.SizeBytes, v.Functions, v.LargestBody))
				row("new instance", fmt.Sprintf("%d bytes of memory", v.MemoryBytes))
				row("imports", strings.Join(v.Imports, ", "))
			})
		})
		fmt.Fprintln(std.err, "the module can be hosted")
		return err
	})
	out = addOutput(c, std)
	return c
}

// checkModule admits, compiles and starts the module as a node would.
func checkModule(ctx context.Context, wasm []byte) (v checkView, err error) {
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
	g, err := m.Instantiate(ctx)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	v = checkView{
		Digest: hex.EncodeToString(digest[:]), Name: m.Manifest().Name, Version: m.Manifest().Version, SizeBytes: description.Bytes,
		Functions: description.Functions, LargestBody: description.LargestBody, MemoryBytes: g.MemoryBytes(), Imports: description.Imports,
	}
	for _, t := range m.Manifest().EntityTypes {
		v.EntityTypes = append(v.EntityTypes, t.Name)
	}
	return v, nil
}
