package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

func newSetting(std stdio) *cobra.Command {
	return group("setting", "Read and write the settings that every node has a copy of",
		newSettingGet(std), newSettingPut(std), newSettingList(std), newSettingWatch(std))
}

type settingView struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Revision uint64 `json:"revision"`
}

func viewSetting(s *clusterv1.Setting) settingView {
	return settingView{s.GetKey(), s.GetValue(), s.GetRevision()}
}

func newSettingGet(std stdio) *cobra.Command {
	var r *remote
	var out *output
	c := leaf("get KEY", "Print a setting's value", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := c.Setting(ctx, args[0])
		if err != nil {
			return fmt.Errorf("get: %w", err)
		}
		return out.print(viewSetting(s), func(w io.Writer) { fmt.Fprintln(w, clean(s.GetValue())) })
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func newSettingPut(std stdio) *cobra.Command {
	var r *remote
	c := leaf("put KEY VALUE", "Write a setting; an empty value removes it", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		revision, err := c.PutSetting(ctx, args[0], args[1])
		if err != nil {
			return fmt.Errorf("put: %w", err)
		}
		fmt.Fprintf(std.err, "revision %d\n", revision)
		return nil
	})
	c.Long = "Writes a setting; an empty value removes it. Those about entity types take effect while the cluster runs: " +
		"entity.TYPE.passivate-after (30m, never), entity.TYPE.retain-events (a number, snapshots, all) and entity.TYPE.retain-snapshots (1 to 4)."
	r = addRemote(c)
	return c
}

func newSettingList(std stdio) *cobra.Command {
	var r *remote
	var out *output
	c := leaf("ls [PREFIX]", "List the settings whose names begin with a prefix", 0, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		settings, revision, err := c.Settings(ctx, first(args))
		if err != nil {
			return fmt.Errorf("ls: %w", err)
		}
		v := struct {
			Settings []settingView `json:"settings"`
			Revision uint64        `json:"revision"`
		}{[]settingView{}, revision}
		for _, s := range settings {
			v.Settings = append(v.Settings, viewSetting(s))
		}
		return out.print(v, func(w io.Writer) {
			table(w, "KEY\tVALUE\tREVISION", func(row func(...any)) {
				for _, s := range v.Settings {
					row(s.Key, s.Value, s.Revision)
				}
			})
		})
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func newSettingWatch(std stdio) *cobra.Command {
	var r *remote
	var out *output
	c := leaf("watch [PREFIX]", "Print settings and their changes, a line for each; one without a value was removed", 0, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		for s, err := range c.WatchSettings(ctx, first(args)) {
			if err != nil {
				return following(ctx, true, fmt.Errorf("watch: %w", err))
			}
			v := viewSetting(s)
			if err := out.line(v, fmt.Sprintf("%d  %s  %s", v.Revision, clean(v.Key), clean(v.Value))); err != nil {
				return err
			}
		}
		return nil
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}

// first returns the first argument, or nothing.
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
