package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

func newType(std cli.Stdio) *cobra.Command {
	suspend := newTypeSwitch(std, "suspend", "Hold an entity type: refuse commands, let sends, timers and schedules wait", "true", "suspended")
	suspend.Long = "Holds all entities of a type, while something is looked into or mended. Commands of callers are refused (failed_precondition), " +
		"sends to them, timers and schedules wait, and queries are answered. It lasts until hostd type resume, over restarts too."
	resume := newTypeSwitch(std, "resume", "Let an entity type go on that is suspended", "", "resumed")
	return cli.Group("type", "Hold entity types, and let them go on", suspend, resume)
}

func newTypeSwitch(std cli.Stdio, verb, short, value, done string) *cobra.Command {
	return cli.Order(std, verb+" TYPE", short, 1, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		_, err := s.PutSetting(ctx, "entity."+args[0]+".suspended", value)
		return fmt.Sprintf("%s is %s", args[0], done), err
	})
}
