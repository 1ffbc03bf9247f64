package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/forms"
	"github.com/hostd/hostd/cmd/hostd/internal/modules"
)

// minDigestPrefix is the minimum length of a digest prefix.
const minDigestPrefix = 8

// fullDigest completes a digest from its prefix.
func fullDigest(ctx context.Context, c *client.Client, prefix string) (string, error) {
	if !isDigestPrefix(prefix) {
		return "", cli.Usagef("%q is not a digest: give at least its first %d hex digits", prefix, minDigestPrefix)
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
			return "", fmt.Errorf("the digests of several modules begin with %s", prefix)
		}
		found = m.GetDigest()
	}
	if found == "" {
		return "", cli.Hint(fmt.Errorf("no module's digest begins with %s", prefix), "'hostd module ls' lists the uploaded modules.")
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

// description is a module and its manifest, as they are printed.
type description struct {
	*cli.Object
	res *modulev1.GetModuleResponse
}

func newModuleDescribe(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "describe TYPE|DIGEST", "Show a module's metadata and manifest", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (description, error) {
		res, err := findModule(ctx, s.Client, args[0])
		if err != nil {
			return description{}, err
		}
		v := description{viewModule(res.GetModule()), res}
		if m := res.GetManifest(); m != nil {
			text, err := jsonvalue.Append(nil, structpb.NewStructValue(m))
			if err != nil {
				return v, err
			}
			v.Set("manifest", cli.NewPayload(text).JSON)
		}
		return v, nil
	}, func(w io.Writer, v description) { describeModule(w, v.res) })
}

// findModule finds a module by the type that it serves or, if there is no such
// type, by its digest.
func findModule(ctx context.Context, c *client.Client, name string) (*modulev1.GetModuleResponse, error) {
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

func describeModule(w io.Writer, res *modulev1.GetModuleResponse) {
	m := res.GetModule()
	cli.Table(w, "MODULE\t"+m.GetDigest(), func(row func(...any)) {
		row("name", m.GetName())
		row("version", m.GetVersion())
		row("size", fmt.Sprintf("%d bytes", m.GetSizeBytes()))
		row("uploaded", m.GetUploadedAt().AsTime().UTC().Format(time.RFC3339))
		row("signed by", signedText(m))
		row("active for", strings.Join(m.GetActiveFor(), ", "))
		if since := unusedText(m); since != "" {
			row("unused since", since)
		}
		if parts := modules.PartsText(m); parts != "" {
			row("in part", parts)
		}
		for _, b := range m.GetActivations() {
			if b.GetOwner() != "" {
				row("owner of "+cli.Clean(b.GetEntityType()), cli.Clean(b.GetOwner()))
			}
			if l := b.GetLimits(); l != nil {
				row("limits of "+cli.Clean(b.GetEntityType()), limitText(l))
			}
		}
	})
	describeVerifications(w, m.GetVerifications())
	types := res.GetManifest().GetFields()["entityTypes"].GetListValue().GetValues()
	for _, t := range types {
		f := t.GetStructValue().GetFields()
		fmt.Fprintf(w, "\nTYPE %s (%s, %s)\n", cli.Clean(f["name"].GetStringValue()), cli.Clean(f["kind"].GetStringValue()), cli.Clean(f["encoding"].GetStringValue()))
		for _, kind := range []struct{ member, key string }{{"commands", "name"}, {"queries", "name"}, {"events", "type"}} {
			var names []string
			for _, n := range f[kind.member].GetListValue().GetValues() {
				name := cli.Clean(n.GetStructValue().GetFields()[kind.key].GetStringValue())
				if kind.member == "commands" && n.GetStructValue().GetFields()["internal"].GetBoolValue() {
					name += " (internal)"
				}
				if to := n.GetStructValue().GetFields()["upcastTo"].GetStringValue(); to != "" {
					name += " (read as " + cli.Clean(to) + ")"
				}
				names = append(names, name)
			}
			if len(names) > 0 {
				fmt.Fprintf(w, "  %-9s %s\n", kind.member, strings.Join(names, ", "))
			}
			describeForms(w, f[kind.member].GetListValue().GetValues(), kind.key)
		}
		if options := optionsOf(f); options != "" {
			fmt.Fprintf(w, "  %-9s %s\n", "options", options)
		}
	}
}

// describeForms prints the schemas of payloads and replies, if there are any.
func describeForms(w io.Writer, list []*structpb.Value, key string) {
	for _, one := range list {
		f := one.GetStructValue().GetFields()
		takes, answers := forms.Text(f["schema"]), forms.Text(f["reply"])
		if answers != "" {
			takes = strings.TrimPrefix(takes+" -> "+answers, " ")
		}
		if takes != "" {
			fmt.Fprintf(w, "    %s: %s\n", cli.Clean(f[key].GetStringValue()), cli.Clean(takes))
		}
	}
}

// optionsOf returns a type's options in the manifest, in the manifest's
// notation.
func optionsOf(entityType map[string]*structpb.Value) string {
	var out []string
	for _, name := range []string{"snapshotEvery", "retainSnapshots", "retainEvents", "passivateAfter", "alwaysOn", "rememberEntities", "singleton", "shardKey", "stateVersion", "validate", "sends", "acceptsFrom"} {
		v, said := entityType[name]
		if !said {
			continue
		}
		text, err := jsonvalue.Append(nil, v)
		if err != nil {
			continue
		}
		out = append(out, name+" "+cli.Clean(strings.Trim(string(text), `"`)))
	}
	if states := entityType["readsStates"].GetListValue().GetValues(); len(states) > 0 {
		versions := make([]string, len(states))
		for i, s := range states {
			versions[i] = fmt.Sprint(s.GetStructValue().GetFields()["version"].GetNumberValue())
		}
		out = append(out, "readsStates "+strings.Join(versions, ","))
	}
	return strings.Join(out, ", ")
}

// describeVerifications prints the results of a module's verifications.
func describeVerifications(w io.Writer, list []*modulev1.Verification) {
	for _, v := range list {
		scope := "a sample"
		if v.GetAll() {
			scope = "all"
		}
		fmt.Fprintf(w, "verified for %s, %s: %d entities, %d events, %d differences, %d faults, under revision %d, at %s\n", cli.Clean(v.GetEntityType()), scope,
			v.GetEntities(), v.GetEvents(), v.GetDifferences(), v.GetFaults(), v.GetRevision(), v.GetVerifiedAt().AsTime().UTC().Format(time.RFC3339))
	}
}
