package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

func newModule(std stdio) *cobra.Command {
	return group("module", "Upload modules and choose which one serves an entity type",
		newModulePush(std), newModuleList(std), newModuleDescribe(std), newModuleActivate(std), newModuleRollback(std),
		newModuleVerify(std), newModuleCheck(std))
}

// maxModuleBytes bounds what is read of a module's file; the server's limit is
// lower.
const maxModuleBytes = 32 << 20

func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, hint(err, "Give the path of a .wasm file.")
	}
	defer f.Close()
	wasm, err := io.ReadAll(io.LimitReader(f, maxModuleBytes+1))
	if err != nil {
		return nil, err
	}
	if len(wasm) > maxModuleBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxModuleBytes)
	}
	return wasm, nil
}

func newModulePush(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var noActivate bool
	c := leaf("push FILE.wasm", "Upload a module and activate it for every entity type in it", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		wasm, err := readModule(args[0])
		if err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		fmt.Fprintf(std.err, "uploading %s (%d bytes)\n", args[0], len(wasm))
		up, err := c.Upload(ctx, wasm, !noActivate)
		if err != nil {
			return fmt.Errorf("push: %w", err)
		}
		v := struct {
			Digest      string   `json:"digest"`
			EntityTypes []string `json:"entityTypes"`
			Activated   bool     `json:"activated"`
		}{up.Digest, up.EntityTypes, !noActivate}
		return out.print(v, func(w io.Writer) {
			fmt.Fprintln(w, up.Digest)
			if noActivate {
				fmt.Fprintf(std.err, "uploaded; serve a type with it: hostd module activate TYPE %s (types: %s)\n", up.Digest, strings.Join(up.EntityTypes, ", "))
			} else {
				fmt.Fprintf(std.err, "active for %s\n", strings.Join(up.EntityTypes, ", "))
			}
		})
	})
	c.Flags().BoolVar(&noActivate, "no-activate", false, "only upload")
	r, out = addRemote(c), addOutput(c, std)
	return c
}

// moduleView is a module as it is printed.
type moduleView struct {
	Digest      string          `json:"digest"`
	Name        string          `json:"name"`
	Version     string          `json:"version"`
	SizeBytes   uint64          `json:"sizeBytes"`
	UploadedAt  time.Time       `json:"uploadedAt"`
	EntityTypes []string        `json:"entityTypes"`
	ActiveFor   []string        `json:"activeFor"`
	Bindings    []bindingView   `json:"bindings"`
	Manifest    json.RawMessage `json:"manifest,omitempty"`
	limits      string
}

// bindingView is how a module serves an entity type; Limits are the type's
// own, by the names that module activate takes.
type bindingView struct {
	EntityType string            `json:"entityType"`
	Revision   uint64            `json:"revision"`
	Limits     map[string]uint64 `json:"limits"`
}

func viewBindings(m *modulev1.Module) []bindingView {
	out := []bindingView{}
	for _, b := range m.GetBindings() {
		v := bindingView{b.GetEntityType(), b.GetRevision(), map[string]uint64{}}
		for _, l := range limits() {
			if value := l.get(b.GetLimits()); value > 0 {
				v.Limits[l.name] = value
			}
		}
		out = append(out, v)
	}
	return out
}

// limitsText has the limits of all types that a module serves and that have
// some.
func limitsText(m *modulev1.Module) string {
	var out []string
	for _, b := range m.GetBindings() {
		if text := limitText(b.GetLimits()); text != "" {
			out = append(out, clean(b.GetEntityType())+":"+text)
		}
	}
	return strings.Join(out, " ")
}

func viewModule(m *modulev1.Module) moduleView {
	return moduleView{
		limits: limitsText(m), Bindings: viewBindings(m),
		Digest: m.GetDigest(), Name: m.GetName(), Version: m.GetVersion(), SizeBytes: m.GetSizeBytes(), UploadedAt: m.GetUploadedAt().AsTime(),
		EntityTypes: append([]string{}, m.GetEntityTypes()...), ActiveFor: append([]string{}, m.GetActiveFor()...),
	}
}

func newModuleList(std stdio) *cobra.Command {
	var r *remote
	var out *output
	c := leaf("ls", "List the uploaded modules, newest first", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		modules, err := c.Modules(ctx)
		if err != nil {
			return err
		}
		v := struct {
			Modules []moduleView `json:"modules"`
		}{[]moduleView{}}
		for _, m := range modules {
			v.Modules = append(v.Modules, viewModule(m))
		}
		return out.print(v, func(w io.Writer) {
			table(w, "DIGEST\tNAME\tVERSION\tSIZE\tTYPES\tACTIVE FOR\tLIMITS\tUPLOADED", func(row func(...any)) {
				for _, m := range v.Modules {
					row(m.Digest[:min(12, len(m.Digest))], m.Name, m.Version, m.SizeBytes, strings.Join(m.EntityTypes, ","),
						strings.Join(m.ActiveFor, ","), m.limits, m.UploadedAt.UTC().Format(time.DateTime))
				}
			})
		})
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func newModuleActivate(std stdio) *cobra.Command {
	var r *remote
	var limits []string
	var out *output
	c := leaf("activate TYPE DIGEST", "Let an uploaded module serve an entity type", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		digest, err := fullDigest(ctx, c, args[1])
		if err != nil {
			return err
		}
		wanted, err := parseLimits(limits)
		if err != nil {
			return err
		}
		revision, err := c.ActivateLimited(ctx, args[0], digest, wanted)
		if err != nil {
			return fmt.Errorf("activate: %w", err)
		}
		return printBinding(out, args[0], digest, revision)
	})
	c.Flags().StringSliceVar(&limits, "limit", nil, "hold the type to these `limits`, NAME=VALUE with commas between: "+limitNames()+"; none= lifts all, without the flag they stay")
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func newModuleRollback(std stdio) *cobra.Command {
	var r *remote
	var out *output
	c := leaf("rollback TYPE", "Let the module before the current one serve an entity type again", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		res, err := c.Rollback(ctx, args[0])
		if err != nil {
			return fmt.Errorf("rollback: %w", err)
		}
		return printBinding(out, args[0], res.GetDigest(), res.GetRevision())
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func printBinding(out *output, entityType, digest string, revision uint64) error {
	v := struct {
		EntityType string `json:"entityType"`
		Digest     string `json:"digest"`
		Revision   uint64 `json:"revision"`
	}{entityType, digest, revision}
	return out.print(v, func(w io.Writer) { fmt.Fprintf(w, "%s is served by %s (revision %d)\n", entityType, digest, revision) })
}
