package modules

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// bindingHistory lists the activations of a type, as they are printed.
type bindingHistory struct {
	EntityType string        `json:"entityType"`
	Changes    []*cli.Object `json:"changes"`
	changes    []*modulev1.ActivationChange
}

// NewHistory returns the command that lists the activations of an entity type.
func NewHistory(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "history TYPE", "List the modules that have served an entity type, newest first, and who activated them", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (bindingHistory, error) {
		changes, err := client.ModuleHistory(ctx, s.Client, args[0])
		v := bindingHistory{EntityType: args[0], Changes: []*cli.Object{}, changes: changes}
		for _, c := range changes {
			v.Changes = append(v.Changes, cli.View(c).Set("kind", kindOf(c)))
		}
		return v, err
	}, func(w io.Writer, v bindingHistory) {
		cli.Table(w, "REVISION\tCHANGED\tKIND\tDIGEST\tBY\tFORCED", func(row func(...any)) {
			for _, c := range v.changes {
				kind := kindOf(c)
				if c.GetKind() == modulev1.ActivationChange_KIND_CANARY {
					kind += " of " + partText(c.GetShare(), c.GetPrefix())
				}
				if c.GetRolledBackRevision() > 0 {
					kind += fmt.Sprintf(" of %d", c.GetRolledBackRevision())
				}
				row(c.GetRevision(), c.GetChangedAt().AsTime().UTC().Format(time.DateTime), kind, c.GetDigest()[:min(12, len(c.GetDigest()))],
					cmp.Or(cli.Clean(c.GetChangedBy()), "-"), map[bool]string{true: "yes", false: ""}[c.GetForced()])
			}
		})
	})
}

// kindOf returns the kind of a change in one word.
func kindOf(c *modulev1.ActivationChange) string {
	return strings.ToLower(strings.TrimPrefix(c.GetKind().String(), "KIND_"))
}
