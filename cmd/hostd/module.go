package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/debugging"
	"github.com/hostd/hostd/cmd/hostd/internal/modulecheck"
	"github.com/hostd/hostd/cmd/hostd/internal/modules"
	"github.com/hostd/hostd/cmd/hostd/internal/registry"
)

func newModule(std cli.Stdio) *cobra.Command {
	return cli.Group("module", "Upload modules and choose which one serves an entity type",
		newModulePush(std), registry.NewPublish(std), registry.NewPull(std), newModuleList(std), newModuleDescribe(std), newModuleActivate(std), newModuleRollback(std),
		modules.NewVerify(std, fullDigest), modulecheck.NewCommand(std), newModuleRemove(std), modules.NewHistory(std), modules.NewRollout(std), modules.NewKeygen(std), modules.NewSign(std), modules.NewDiff(std, fullDigest), modules.NewQuotas(std), debugging.NewGuestProfile(std))
}

// pushed is an uploaded module as it is printed.
type pushed struct {
	Digest      string   `json:"digest"`
	EntityTypes []string `json:"entityTypes"`
	Activated   bool     `json:"activated"`
}

func newModulePush(std cli.Stdio) *cobra.Command {
	var noActivate, force, plainHTTP bool
	var signatureFile string
	var signature []byte
	var read func(context.Context) (wasm, signature []byte, err error)
	c := cli.Ask(std, "push FILE.wasm|oci://HOST/REPOSITORY:TAG", "Upload a module and activate it for all its entity types", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (pushed, error) {
		wasm, published, err := read(ctx)
		if err != nil {
			return pushed{}, err
		}
		if signature == nil {
			signature = published
		}
		fmt.Fprintf(std.Err, "uploading %s (%d bytes)\n", args[0], len(wasm))
		up, err := client.UploadModule(ctx, s.Client, &modulev1.UploadModuleRequest{Wasm: wasm, Signature: signature, Activate: !noActivate, Force: force})
		printWarnings(std, up.GetWarnings())
		return pushed{up.GetDigest(), up.GetEntityTypes(), !noActivate}, err
	}, func(w io.Writer, v pushed) {
		fmt.Fprintln(w, v.Digest)
		if v.Activated {
			fmt.Fprintf(std.Err, "active for %s\n", strings.Join(v.EntityTypes, ", "))
		} else {
			fmt.Fprintf(std.Err, "uploaded; activate it with: hostd module activate TYPE %s (types: %s)\n", v.Digest, strings.Join(v.EntityTypes, ", "))
		}
	})
	c.Flags().BoolVar(&noActivate, "no-activate", false, "upload the module without activating it")
	c.Flags().BoolVar(&force, "force", false, forceUsage)
	c.Flags().StringVar(&signatureFile, "signature", "", "`file` with the module's signature from 'hostd module sign'")
	registry.AddPlainHTTP(c, &plainHTTP)
	cli.SetTimeout(c, 2*time.Minute) // the nodes compile the module during the call
	cli.Before(c, func(args []string) (err error) {
		if signature, err = modules.ReadSignature(c.Context(), signatureFile); err != nil {
			return err
		}
		read, err = registry.OpenModule(args[0], plainHTTP)
		return err
	})
	return c
}

const forceUsage = "activate the module even if it is incompatible with stored data; entities that it cannot load will fail"

// printWarnings prints the warnings of an activation.
func printWarnings(std cli.Stdio, remarks []string) {
	for _, r := range remarks {
		fmt.Fprintln(std.Err, "note:", cli.Clean(r))
	}
}

// activationView is the activation of a module for an entity type. Limits are the
// type's own limits, by the names that module activate accepts.
type activationView struct {
	EntityType string            `json:"entityType"`
	Revision   uint64            `json:"revision"`
	Limits     map[string]uint64 `json:"limits"`
	// Sends and AcceptsFrom are null if the type does not restrict them.
	Sends       []string `json:"sends"`
	AcceptsFrom []string `json:"acceptsFrom"`
	// Owner is the subject that owns the type; it may be empty.
	Owner string `json:"owner"`
}

// viewModule returns a module as it is printed.
func viewModule(m *modulev1.Module) *cli.Object {
	activations := []activationView{}
	for _, b := range m.GetActivations() {
		v := activationView{b.GetEntityType(), b.GetRevision(), map[string]uint64{}, patterns(b.GetSends()), patterns(b.GetAcceptsFrom()), b.GetOwner()}
		for _, l := range limits() {
			if value := l.get(b.GetLimits()); value > 0 {
				v.Limits[l.name] = value
			}
		}
		activations = append(activations, v)
	}
	return cli.View(m).Set("activations", activations)
}

// patterns returns the patterns of a type, or nil if the type has no
// restriction.
func patterns(p *modulev1.TypePatterns) []string {
	if p == nil {
		return nil
	}
	return append([]string{}, p.GetPatterns()...)
}

// ownersOf returns the owners of the types that a module serves.
func ownersOf(m *modulev1.Module) []string {
	var out []string
	for _, b := range m.GetActivations() {
		if b.GetOwner() != "" {
			out = append(out, b.GetEntityType()+"="+b.GetOwner())
		}
	}
	return out
}

// briefLength is the number of characters for a list of values in a table.
const briefLength = 24

// brief joins the first values of a list, at least one, shortened if
// necessary, and the number of the remaining values.
func brief(values ...string) string {
	text := ""
	for i, v := range values {
		if i > 0 && len(text)+len(",")+len(v) > briefLength {
			return fmt.Sprintf("%s,+%d", text, len(values)-i)
		}
		if i > 0 {
			text += ","
		}
		if r := []rune(v); len(r) > 2*briefLength {
			v = string(r[:2*briefLength-3]) + "..."
		}
		text += v
	}
	return text
}

// signedText returns the signer of a module, or why its signature is not
// trusted.
func signedText(m *modulev1.Module) string {
	if fault := m.GetSignatureFault(); fault != "" {
		return cli.Clean(strings.ToLower(strings.TrimPrefix(fault, "SIGNATURE_")))
	}
	return cli.Clean(m.GetSignedBy())
}

// unusedText returns since when a module has been unused.
func unusedText(m *modulev1.Module) string {
	if m.GetUnusedSince() == nil {
		return ""
	}
	return m.GetUnusedSince().AsTime().UTC().Format(time.DateTime)
}

func newModuleRemove(std cli.Stdio) *cobra.Command {
	c := cli.Order(std, "rm DIGEST", "Remove an uploaded module that is not in use", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		digest, err := fullDigest(ctx, s.Client, args[0])
		if err != nil {
			return "", err
		}
		return digest + " was removed", client.RemoveModule(ctx, s.Client, digest)
	})
	c.Long = "Removes a module that serves no type and that no rollback can return to. Nodes delete its bytes within the next hours."
	return c
}

type moduleList struct {
	Modules []*cli.Object `json:"modules"`
	modules []*modulev1.Module
}

func newModuleList(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "ls", "List the uploaded modules, newest first", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (moduleList, error) {
		modules, err := s.Modules(ctx)
		v := moduleList{[]*cli.Object{}, modules}
		for _, m := range modules {
			v.Modules = append(v.Modules, viewModule(m))
		}
		return v, err
	}, func(w io.Writer, v moduleList) { moduleTable(w, v.modules) })
}

// moduleTable lists modules for people. It shows what identifies a module and
// which types it serves; limits and messages are left to describe.
func moduleTable(w io.Writer, list []*modulev1.Module) {
	cli.Table(w, "DIGEST\tNAME\tVERSION\tSIZE\tTYPES\tACTIVE FOR\tIN PART\tOWNERS\tSIGNED BY\tUPLOADED", func(row func(...any)) {
		for _, m := range list {
			row(m.GetDigest()[:min(12, len(m.GetDigest()))], brief(m.GetName()), brief(m.GetVersion()), m.GetSizeBytes(), brief(m.GetEntityTypes()...), brief(m.GetActiveFor()...),
				brief(modules.PartsOf(m)...), brief(ownersOf(m)...), brief(signedText(m)), m.GetUploadedAt().AsTime().UTC().Format(time.DateTime))
		}
	})
}

// binding is the current activation of an entity type.
type binding struct {
	EntityType string `json:"entityType"`
	Digest     string `json:"digest"`
	Revision   uint64 `json:"revision"`         // revision of the setting, for a shadow module
	Shadow     string `json:"shadow,omitempty"` // share of a shadow module, "10%", or "off"
	State      string `json:"state,omitempty"`  // verifying: it serves later
}

func (b binding) write(w io.Writer) {
	if b.State != "" {
		fmt.Fprintf(w, "%s is being verified for %s and will serve it afterwards; 'hostd module rollout %s' shows the result\n", b.Digest, cli.Clean(b.EntityType), cli.Clean(b.EntityType))
		return
	}
	fmt.Fprintf(w, "%s is served by %s (revision %d)\n", b.EntityType, b.Digest, b.Revision)
}

func newModuleActivate(std cli.Stdio) *cobra.Command {
	var force, accept, wait bool
	var limits []string
	var wanted *modulev1.Limits
	var part modules.Part
	var shadow modules.Shadow
	c := cli.Ask(std, "activate TYPE DIGEST", "Activate an uploaded module for an entity type", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (binding, error) {
		digest, err := fullDigest(ctx, s.Client, args[1])
		if err != nil {
			return binding{}, err
		}
		if shadow.Percent != "" {
			revision, err := shadow.Put(ctx, s, args[0], digest)
			return binding{EntityType: args[0], Digest: digest, Revision: revision, Shadow: shadow.Percent}, err
		}
		res, err := client.ActivateModule(ctx, s.Client, &modulev1.ActivateModuleRequest{EntityType: args[0], Digest: digest, Limits: wanted, Force: force, AcceptDifferences: accept, Rollout: part.Plan})
		printWarnings(std, res.GetWarnings())
		v := binding{EntityType: args[0], Digest: digest, Revision: res.GetRevision()}
		if err != nil || res.GetState() != modulev1.Rollout_STATE_VERIFYING {
			return v, err
		}
		if v.State = "verifying"; !wait {
			return v, nil
		}
		return v.await(ctx, std, s)
	}, func(w io.Writer, v binding) {
		if shadow.Percent != "" {
			shadow.Write(w, v.EntityType, v.Digest)
			return
		}
		if part.Plan != nil {
			fmt.Fprintf(w, "a part of %s is served by %s (revision %d)\n", cli.Clean(v.EntityType), v.Digest, v.Revision)
			return
		}
		v.write(w)
	})
	cli.Before(c, func([]string) (err error) {
		if wanted, err = parseLimits(limits); err != nil {
			return err
		}
		if err := shadow.Parse(c, "percent", "prefix", "steps", "pause", "abort", "force", "accept-differences", "limit"); err != nil {
			return err
		}
		return part.Parse(c, wanted != nil)
	})
	part.Flags(c)
	shadow.Flags(c)
	c.Flags().BoolVar(&force, "force", false, forceUsage)
	c.Flags().BoolVar(&accept, "accept-differences", false, "accept the state differences that a verification found")
	c.Flags().BoolVar(&wait, "wait", true, "wait until the cluster has compared the module with truncated histories; without a limit unless --timeout is set; the comparison continues if the wait ends")
	c.Flags().StringSliceVar(&limits, "limit", nil, "set the type's `limits`, comma-separated NAME=VALUE: "+limitNames()+"; none= removes all limits; unset keeps the current limits")
	return c
}

// await waits until the module serves or is rejected.
func (b binding) await(ctx context.Context, std cli.Stdio, s *cli.Session) (binding, error) {
	name := cli.Clean(b.EntityType)
	fmt.Fprintf(std.Err, "comparing the module with the truncated histories of %s; the cluster continues if you interrupt this, and 'hostd module rollout %s --abort' ends it\n", name, name)
	revision, err := client.AwaitActivation(ctx, s.Client, b.EntityType, b.Digest)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return b, fmt.Errorf("the module is still being verified, 'hostd module rollout %s' shows the result: %w", name, err)
	}
	if err != nil {
		return b, err
	}
	b.Revision, b.State = revision, ""
	return b, nil
}

// wentBack is the result of a rollback.
type wentBack struct {
	binding
	EntityTypes []string `json:"entityTypes"` // all types that were rolled back
}

func newModuleRollback(std cli.Stdio) *cobra.Command {
	var force bool
	c := cli.Ask(std, "rollback TYPE", "Roll an entity type back to its previous module", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (wentBack, error) {
		res, err := client.RollbackModule(ctx, s.Client, &modulev1.RollbackModuleRequest{EntityType: args[0], Force: force})
		printWarnings(std, res.GetWarnings())
		return wentBack{binding{EntityType: args[0], Digest: res.GetDigest(), Revision: res.GetRevision()}, res.GetEntityTypes()}, err
	}, func(w io.Writer, v wentBack) {
		v.write(w)
		for _, t := range v.EntityTypes {
			if t != v.EntityType {
				fmt.Fprintf(w, "rolled back %s too\n", cli.Clean(t))
			}
		}
	})
	c.Flags().BoolVar(&force, "force", false, "roll back even if the previous module cannot load some entities, or not all could be checked; those entities will fail")
	return c
}
