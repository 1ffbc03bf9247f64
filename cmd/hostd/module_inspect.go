package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// minDigestPrefix is how much of a digest names a module.
const minDigestPrefix = 8

// fullDigest completes the beginning of a digest.
func fullDigest(ctx context.Context, c *client.Client, prefix string) (string, error) {
	if !isDigestPrefix(prefix) {
		return "", usagef("%q is not a digest: give at least %d of its hex digits", prefix, minDigestPrefix)
	}
	if len(prefix) == 64 {
		return prefix, nil
	}
	modules, err := c.Modules(ctx)
	if err != nil {
		return "", err
	}
	found := ""
	for _, m := range modules {
		if !strings.HasPrefix(m.GetDigest(), prefix) {
			continue
		}
		if found != "" {
			return "", fmt.Errorf("more than one module begins with %s", prefix)
		}
		found = m.GetDigest()
	}
	if found == "" {
		return "", hint(fmt.Errorf("no module begins with %s", prefix), "'hostd module ls' shows what is uploaded.")
	}
	return found, nil
}

func isDigestPrefix(s string) bool {
	if len(s) < minDigestPrefix || len(s) > 64 {
		return false
	}
	_, err := hex.DecodeString(s[:len(s)/2*2])
	return err == nil && s == strings.ToLower(s)
}

func newModuleDescribe(std stdio) *cobra.Command {
	var r *remote
	var out *output
	c := leaf("describe TYPE|DIGEST", "Show a module and its manifest", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		res, err := findModule(ctx, c, args[0])
		if err != nil {
			return err
		}
		v := viewModule(res.GetModule())
		if m := res.GetManifest(); m != nil {
			text, err := protojson.Marshal(m)
			if err != nil {
				return err
			}
			v.Manifest = newPayload(text).JSON
		}
		return out.print(v, func(w io.Writer) { describeModule(w, v, res) })
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}

// findModule finds a module by the type that it serves, or by its digest when
// there is no such type.
func findModule(ctx context.Context, c *client.Client, name string) (*modulev1.GetResponse, error) {
	res, err := c.ActiveModule(ctx, name)
	if err == nil || !client.IsNotFound(err) || !isDigestPrefix(name) {
		return res, err
	}
	digest, err := fullDigest(ctx, c, name)
	if err != nil {
		return nil, err
	}
	return c.Module(ctx, digest)
}

func describeModule(w io.Writer, v moduleView, res *modulev1.GetResponse) {
	table(w, "MODULE\t"+v.Digest, func(row func(...any)) {
		row("name", v.Name)
		row("version", v.Version)
		row("size", fmt.Sprintf("%d bytes", v.SizeBytes))
		row("uploaded", v.UploadedAt.UTC().Format(time.RFC3339))
		row("active for", strings.Join(v.ActiveFor, ", "))
		for _, b := range res.GetModule().GetBindings() {
			if l := b.GetLimits(); l != nil {
				row("limits of "+clean(b.GetEntityType()), limitText(l))
			}
		}
	})
	types := res.GetManifest().GetFields()["entityTypes"].GetListValue().GetValues()
	for _, t := range types {
		f := t.GetStructValue().GetFields()
		fmt.Fprintf(w, "\nTYPE %s (%s, %s)\n", clean(f["name"].GetStringValue()), clean(f["kind"].GetStringValue()), clean(f["encoding"].GetStringValue()))
		for _, kind := range []struct{ member, key string }{{"commands", "name"}, {"queries", "name"}, {"events", "type"}} {
			var names []string
			for _, n := range f[kind.member].GetListValue().GetValues() {
				names = append(names, clean(n.GetStructValue().GetFields()[kind.key].GetStringValue()))
			}
			if len(names) > 0 {
				fmt.Fprintf(w, "  %-9s %s\n", kind.member, strings.Join(names, ", "))
			}
		}
		if options := optionsOf(f); options != "" {
			fmt.Fprintf(w, "  %-9s %s\n", "options", options)
		}
	}
}

// optionsOf is what a manifest says of a type beside its names, as it says it.
func optionsOf(entityType map[string]*structpb.Value) string {
	var out []string
	for _, name := range []string{"snapshotEvery", "retainSnapshots", "retainEvents", "passivateAfter", "rememberEntities", "singleton", "shardKey"} {
		v, said := entityType[name]
		if !said {
			continue
		}
		text, err := v.MarshalJSON()
		if err != nil {
			continue
		}
		out = append(out, name+" "+clean(strings.Trim(string(text), `"`)))
	}
	return strings.Join(out, ", ")
}

func newModuleVerify(std stdio) *cobra.Command {
	var r *remote
	var out *output
	var sample uint32
	var all bool
	c := leaf("verify TYPE DIGEST", "Replay real histories with a module and report every difference", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
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
		req := &modulev1.VerifyRequest{Digest: digest, EntityType: args[0], Scope: &modulev1.VerifyRequest_Sample{Sample: sample}}
		if all {
			req.Scope = &modulev1.VerifyRequest_All{All: true}
		}
		return verifyModule(ctx, std, r, out, req)
	})
	c.Flags().Uint32Var(&sample, "sample", 100, "`number` of entities to replay, drawn at random")
	c.Flags().BoolVar(&all, "all", false, "replay every entity")
	r, out = addRemote(c), addOutput(c, std)
	return c
}

type difference struct {
	EntityID    string `json:"entityId"`
	Sequence    uint64 `json:"sequence"`
	Description string `json:"description"`
}

func verifyModule(ctx context.Context, std stdio, r *remote, out *output, req *modulev1.VerifyRequest) error {
	v := struct {
		Entities    uint64       `json:"entities"`
		Events      uint64       `json:"events"`
		Differences []difference `json:"differences"`
	}{Differences: []difference{}}
	for m, err := range stream(ctx, r.services().modules.Verify, req) {
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		v.Entities, v.Events = m.GetEntities(), m.GetEvents()
		for _, d := range m.GetDifferences() {
			v.Differences = append(v.Differences, difference{d.GetEntityId(), d.GetSequence(), d.GetDescription()})
		}
		fmt.Fprintf(std.err, "replayed %d entities, %d events\n", v.Entities, v.Events)
	}
	err := out.print(v, func(w io.Writer) {
		table(w, "ENTITY\tSEQUENCE\tDIFFERENCE", func(row func(...any)) {
			for _, d := range v.Differences {
				row(d.EntityID, d.Sequence, d.Description)
			}
		})
	})
	if err == nil && len(v.Differences) > 0 {
		return hint(fmt.Errorf("%d differences in %d entities", len(v.Differences), v.Entities),
			"Do not activate this module: it does not rebuild the state that the recorded events made.")
	}
	return err
}
