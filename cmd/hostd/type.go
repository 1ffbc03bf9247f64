package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/sharding/access"
)

func newType(std cli.Stdio) *cobra.Command {
	suspend := newTypeSwitch(std, "suspend", "Hold an entity type: refuse commands, let sends, timers and schedules wait", "true", "suspended")
	suspend.Long = "Holds all entities of a type, while something is looked into or mended. Commands of callers are refused (failed_precondition), " +
		"sends to them, timers and schedules wait, and queries are answered. It lasts until hostd type resume, over restarts too."
	resume := newTypeSwitch(std, "resume", "Let an entity type go on that is suspended", "", "resumed")
	return cli.Group("type", "Hold entity types, let them go on, and say whose they are", suspend, resume, newTypeOwner(std))
}

// typeOwner is whose a type is; Owner is empty for nobody.
type typeOwner struct {
	EntityType string `json:"entityType"`
	Owner      string `json:"owner"`
}

func newTypeOwner(std cli.Stdio) *cobra.Command {
	var nobody bool
	c := cli.Ask(std, "owner TYPE [SUBJECT]", "Print whose an entity type is, or give it to another", 1, 2, func(ctx context.Context, s *cli.Session, args []string) (typeOwner, error) {
		if len(args) == 1 && !nobody {
			owner, err := s.TypeOwner(ctx, args[0])
			return typeOwner{args[0], owner}, err
		}
		v := typeOwner{EntityType: args[0]}
		if !nobody {
			v.Owner = args[1]
		}
		return v, s.SetTypeOwner(ctx, v.EntityType, v.Owner)
	}, func(w io.Writer, v typeOwner) {
		fmt.Fprintln(w, cmp.Or(cli.Clean(v.Owner), "nobody"))
	})
	c.Long = "Prints the subject that an entity type belongs to, or gives the type to SUBJECT: token:NAME, jwt:NAME, certificate:NAME or group:NAME. " +
		"Where roles decide, only it, those of that group and who may admin the type change what serves the type and how it is kept. " +
		"A type that is nobody's goes to who activates a module for it next."
	c.Flags().BoolVar(&nobody, "nobody", false, "take the type from its owner")
	cli.Before(c, func(args []string) error {
		if nobody && len(args) == 2 {
			return cli.Usagef("give SUBJECT or --nobody, not both")
		}
		if len(args) == 2 {
			if err := access.CheckOwner(args[1]); err != nil {
				return cli.Usage(err)
			}
		}
		return nil
	})
	return c
}

func newTypeSwitch(std cli.Stdio, verb, short, value, done string) *cobra.Command {
	return cli.Order(std, verb+" TYPE", short, 1, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		_, err := s.PutSetting(ctx, "entity."+args[0]+".suspended", value)
		return fmt.Sprintf("%s is %s", args[0], done), err
	})
}
