package main

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/spf13/cobra"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

func newSetting(std cli.Stdio) *cobra.Command {
	return cli.Group("setting", "Read and write cluster-wide settings",
		newSettingGet(std), newSettingPut(std), newSettingList(std), newSettingWatch(std))
}

func newSettingGet(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "get KEY", "Print the value of a setting", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (*clusterv1.Setting, error) {
		return s.Setting(ctx, args[0])
	}, func(w io.Writer, v *clusterv1.Setting) { fmt.Fprintln(w, cli.Clean(v.GetValue())) })
}

func newSettingPut(std cli.Stdio) *cobra.Command {
	c := cli.Order(std, "put KEY VALUE", "Set a setting, or remove it with an empty value", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		revision, err := s.PutSetting(ctx, args[0], args[1])
		return fmt.Sprintf("revision %d", revision), err
	})
	c.Long = "Sets a setting; an empty value removes it. Settings of entity types take effect without a restart: " +
		"entity.TYPE.passivate-after (30m, never), entity.TYPE.retain-events (a number, snapshots, all), entity.TYPE.retain-snapshots (1 to 4), entity.TYPE.max-timers (256 to 1000000), entity.TYPE.max-open-runs (a number), entity.TYPE.run-time-limit (72h), and entity.TYPE.value.NAME, which the type's guests read."
	return c
}

func newSettingList(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "ls [PREFIX]", "List settings, optionally only those whose keys start with a prefix", 0, 1, func(ctx context.Context, s *cli.Session, args []string) (*clusterv1.ListSettingsResponse, error) {
		settings, revision, err := s.Settings(ctx, cli.First(args))
		return &clusterv1.ListSettingsResponse{Settings: settings, Revision: revision}, err
	}, func(w io.Writer, v *clusterv1.ListSettingsResponse) {
		cli.Table(w, "KEY\tVALUE\tREVISION", func(row func(...any)) {
			for _, s := range v.GetSettings() {
				row(s.GetKey(), s.GetValue(), s.GetRevision())
			}
		})
	})
}

func newSettingWatch(std cli.Stdio) *cobra.Command {
	return cli.Follow(std, "watch [PREFIX]", "Print settings and their changes, one a line; a removed setting has no value", 0, 1, cli.Always,
		func(ctx context.Context, s *cli.Session, args []string) iter.Seq2[*clusterv1.Setting, error] {
			return s.WatchSettings(ctx, cli.First(args))
		}, func(v *clusterv1.Setting) string {
			return fmt.Sprintf("%d  %s  %s", v.GetRevision(), cli.Clean(v.GetKey()), cli.Clean(v.GetValue()))
		})
}
