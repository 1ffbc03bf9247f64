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
	suspend := newTypeSwitch(std, "suspend", "Suspend an entity type: reject commands and defer messages, timers and schedules", "true", "suspended")
	suspend.Long = "Suspends all entities of a type, for example during an investigation or a repair. Nodes reject callers' commands (failed_precondition), " +
		"defer messages to them, timers and schedules, and still answer queries. The suspension lasts until 'hostd type resume', even across restarts."
	resume := newTypeSwitch(std, "resume", "Resume a suspended entity type", "", "resumed")
	return cli.Group("type", "Suspend, resume and assign owners to entity types", suspend, resume, newTypeOwner(std))
}

// typeOwner is the owner of a type, which may be empty.
type typeOwner struct {
	EntityType string `json:"entityType"`
	Owner      string `json:"owner"`
}

func newTypeOwner(std cli.Stdio) *cobra.Command {
	var nobody bool
	c := cli.Ask(std, "owner TYPE [SUBJECT]", "Print or set the owner of an entity type", 1, 2, func(ctx context.Context, s *cli.Session, args []string) (typeOwner, error) {
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
	c.Long = "Prints the owner of an entity type, or sets it to SUBJECT: token:NAME, jwt:NAME, certificate:NAME or group:NAME. " +
		"If role checks are on, only the owner, members of an owning group, and callers with the verb admin on the type can change its modules and settings. " +
		"The next caller that activates a module for a type without an owner becomes its owner."
	c.Flags().BoolVar(&nobody, "nobody", false, "remove the owner of the type")
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
