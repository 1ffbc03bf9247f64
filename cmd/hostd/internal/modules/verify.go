package modules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/jsonvalue"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// Exit codes of a verification.
const (
	exitDiffers = 3 // the module computes different states
	exitFaults  = 4 // the module fails on entities
)

// NewVerify returns the command that replays entities with a module. complete
// completes a digest from its prefix.
func NewVerify(std cli.Stdio, complete func(ctx context.Context, c *client.Client, prefix string) (string, error)) *cobra.Command {
	var sample uint32
	var all bool
	var entityType string
	c := cli.Look(std, "verify TYPE DIGEST", "Replay stored histories with a module; exit with 3 if a state differs, and 4 if the module fails", 1, 2, func(ctx context.Context, s *cli.Session, args []string) (verification, error) {
		if entityType != "" {
			args = append([]string{entityType}, args...)
		}
		if len(args) != 2 {
			return verification{}, cli.Usagef("usage: 'hostd module verify TYPE DIGEST', or DIGEST and --type TYPE")
		}
		digest, err := complete(ctx, s.Client, args[1])
		if err != nil {
			return verification{}, err
		}
		req := &modulev1.VerifyModuleRequest{Digest: digest, EntityType: args[0], Scope: &modulev1.VerifyModuleRequest_Sample{Sample: sample}}
		if all {
			req.Scope = &modulev1.VerifyModuleRequest_All{All: true}
		}
		v := verification{Faults: []*cli.Object{}, Differences: []*cli.Object{}}
		for m, err := range cli.Stream(ctx, s.ModuleService.VerifyModule, req) {
			if err != nil {
				return v, err
			}
			v.take(m)
			fmt.Fprintf(std.Err, "replayed %d entities, %d events\n", v.Entities, v.Events)
		}
		return v, nil
	}, func(w io.Writer, v verification) {
		if len(v.found) == 0 {
			fmt.Fprintln(w, "no differences")
			return
		}
		cli.Table(w, "ENTITY\tSEQUENCE\tDIFFERENCE", func(row func(...any)) {
			for _, d := range v.found {
				text := cli.Clean(d.GetDescription())
				if d.GetFault() {
					text = "fault: " + text
				}
				if p := patch(d); p != "" {
					text += "; " + p
				}
				row(cli.Clean(d.GetEntityId()), d.GetSequence(), text)
			}
		})
	})
	c.Flags().Uint32Var(&sample, "sample", 100, "`number` of entities to replay, chosen at random")
	c.Flags().BoolVar(&all, "all", false, "replay every entity")
	c.Flags().StringVar(&entityType, "type", "", "entity `type`, if DIGEST is the only argument")
	return c
}

// shownOperations is how many operations of a patch are printed for people.
const shownOperations = 5

// patch returns how the state of the module differs, for people; empty if that
// is unknown.
func patch(d *modulev1.VerifyModuleResponse_Difference) string {
	var steps []string
	for i, o := range d.GetPatch() {
		if i == shownOperations {
			break
		}
		step := o.GetOp() + " " + cli.Clean(o.GetPath())
		if o.GetValue() != nil {
			if value, err := jsonvalue.Append(nil, o.GetValue()); err == nil {
				step += " " + cli.NewPayload(value).Text()
			}
		}
		steps = append(steps, step)
	}
	if more := len(d.GetPatch()) - len(steps); more > 0 || d.GetPatchTruncated() {
		steps = append(steps, "and more")
	}
	return strings.Join(steps, ", ")
}

// verification is the result of verify. It lists at most a hundred entities on
// which the module fails, and as many for which it computes a different state.
type verification struct {
	Entities           uint64        `json:"entities"`
	Events             uint64        `json:"events"`
	TruncatedEntities  uint64        `json:"truncatedEntities"`
	UncomparedEntities uint64        `json:"uncomparedEntities"`
	DifferingEntities  uint64        `json:"differingEntities"`
	FaultyEntities     uint64        `json:"faultyEntities"`
	Stored             bool          `json:"stored"`
	Faults             []*cli.Object `json:"faults"`
	Differences        []*cli.Object `json:"differences"`
	found              []*modulev1.VerifyModuleResponse_Difference
	notStoredReason    string
}

// take adds one message. A node of the previous release sends no counts, but
// lists all entities.
func (v *verification) take(m *modulev1.VerifyModuleResponse) {
	v.Entities, v.Events, v.TruncatedEntities, v.UncomparedEntities = m.GetEntities(), m.GetEvents(), m.GetTruncatedEntities(), m.GetUncomparedEntities()
	v.Stored, v.notStoredReason = m.GetStored(), m.GetNotStoredReason()
	v.found = append(v.found, m.GetDifferences()...)
	for _, d := range m.GetDifferences() {
		if d.GetFault() {
			v.Faults = append(v.Faults, cli.View(d))
		} else {
			v.Differences = append(v.Differences, cli.View(d))
		}
	}
	v.DifferingEntities = max(m.GetDifferingEntities(), uint64(len(v.Differences)))
	v.FaultyEntities = max(m.GetFaultyEntities(), uint64(len(v.Faults)))
}

// Remark implements cli.Remark.
func (v verification) Remark() (line string, failure error) {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if v.TruncatedEntities > 0 {
		say("%d more entities were skipped: their first events were truncated, and the active module has no snapshot of them", v.TruncatedEntities)
	}
	if v.UncomparedEntities > 0 {
		say("%d entities were replayed but not compared: the active module fails on them, or computes two states from the same events", v.UncomparedEntities)
	}
	if v.notStoredReason != "" {
		say("the result was not stored: %s", cli.Clean(v.notStoredReason))
	}
	switch {
	case v.FaultyEntities > 0:
		say("The module fails on %d of %d entities. Do not activate it.", v.FaultyEntities, v.Entities)
		failure = &cli.ExitError{Code: exitFaults}
	case v.DifferingEntities > 0:
		say("The module computes a different state than the active module for %d of %d entities. Activate it only if that is intended.", v.DifferingEntities, v.Entities)
		failure = &cli.ExitError{Code: exitDiffers}
	case v.Entities == 0 && v.TruncatedEntities > 0:
		failure = errors.New("no entity could be replayed")
	}
	return strings.Join(lines, "\n"), failure
}
