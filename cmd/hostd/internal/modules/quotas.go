package modules

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/sharding/meta"
)

// NewQuotas returns the command that shows the limits of stored modules.
func NewQuotas(std cli.Stdio) *cobra.Command {
	c := cli.Ask(std, "quotas", "Show the quotas of uploaded modules and their usage", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (*modulev1.GetQuotasResponse, error) {
		return client.ModuleQuotas(ctx, s.Client)
	}, func(w io.Writer, q *modulev1.GetQuotasResponse) {
		used, most := q.GetUsed(), q.GetLimit()
		cli.Table(w, "OF MODULES\tUSED\tMOST\tSETTING", func(row func(...any)) {
			row("number", used.GetModules(), most.GetModules(), meta.SettingModuleCount)
			row("bytes", used.GetBytes(), most.GetBytes(), meta.SettingModuleBytes)
			row("your modules", used.GetOwnModules(), most.GetOwnModules(), meta.SettingModuleUploader)
			row("bytes of your modules", used.GetOwnBytes(), most.GetOwnBytes(), meta.SettingModuleUploaderBytes)
			row("retention of unused modules", "", retention(q), meta.SettingModuleRetention)
		})
	})
	c.Long = "Shows the quotas of uploaded modules and their usage. 'hostd setting put' changes a quota. If the usage already exceeds it, existing modules stay and uploads are rejected."
	return c
}

// retention returns how long an unused module is kept.
func retention(q *modulev1.GetQuotasResponse) string {
	if q.GetRetention() == nil {
		return "forever"
	}
	return q.GetRetention().AsDuration().String()
}
