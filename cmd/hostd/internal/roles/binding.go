package roles

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/sharding/access"
)

// NewBinding returns the commands for role bindings.
func NewBinding(std cli.Stdio) *cobra.Command {
	return cli.Group("binding", "Manage the roles that callers have",
		newBindingList(std), newBindingGet(std), newBindingPut(std), newBindingRemove(std))
}

// bindings are the cluster's role bindings as they are printed.
type bindings struct {
	Bindings []*cli.Object `json:"bindings"`
	Revision uint64        `json:"revision"`
	Enforced bool          `json:"enforced"`
	shown    []*clusterv1.RoleBinding
}

// Remark implements cli.Remark.
func (b *bindings) Remark() (line string, failure error) {
	if b.Enforced {
		return "", nil
	}
	return notEnforced, nil
}

const notEnforced = "there is no " + access.RoleAdmin + ": role checks are off, and every accepted caller has all rights"

// WarnUnlessEnforced warns on standard error if role checks are off, because
// the user who has just bound a role may expect otherwise. If it cannot find
// out, it prints nothing.
func WarnUnlessEnforced(ctx context.Context, s *cli.Session) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	if res, err := s.RoleBindings(ctx); err == nil && !res.GetEnforced() {
		fmt.Fprintf(s.Std.Err, "%s; 'hostd binding put SUBJECT %s' turns them on\n", notEnforced, access.RoleAdmin)
	}
}

func newBindingList(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "ls", "List the role bindings of the cluster", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (*bindings, error) {
		res, err := s.RoleBindings(ctx)
		if err != nil {
			return nil, err
		}
		return &bindings{Bindings: cli.Views(res.GetBindings()), Revision: res.GetRevision(), Enforced: res.GetEnforced(), shown: res.GetBindings()}, nil
	}, func(w io.Writer, v *bindings) {
		cli.Table(w, "SUBJECT\tROLES\tREVISION", func(row func(...any)) {
			for _, b := range v.shown {
				row(b.GetSubject(), strings.Join(b.GetRoles(), ","), b.GetRevision())
			}
		})
	})
}

func newBindingGet(std cli.Stdio) *cobra.Command {
	c := cli.Ask(std, "get SUBJECT", "Print the roles of a subject", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (*clusterv1.RoleBinding, error) {
		res, err := s.RoleBindings(ctx)
		if err != nil {
			return nil, err
		}
		for _, b := range res.GetBindings() {
			if b.GetSubject() == args[0] {
				return b, nil
			}
		}
		return nil, cli.Hint(fmt.Errorf("%.80q has no roles", args[0]), "'hostd binding ls' lists the bindings.")
	}, func(w io.Writer, b *clusterv1.RoleBinding) {
		cli.Table(w, "SUBJECT\tROLES\tREVISION", func(row func(...any)) {
			row(b.GetSubject(), strings.Join(b.GetRoles(), ","), b.GetRevision())
		})
	})
	cli.Before(c, func(args []string) error {
		if err := access.CheckSubject(args[0]); err != nil {
			return cli.Usage(err)
		}
		return nil
	})
	return c
}

func newBindingPut(std cli.Stdio) *cobra.Command {
	c := cli.Order(std, "put SUBJECT ROLE...", "Set the roles of a subject", 2, -1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		revision, err := s.PutRoleBinding(ctx, args[0], args[1:]...)
		if err == nil {
			WarnUnlessEnforced(ctx, s)
		}
		return fmt.Sprintf("revision %d", revision), err
	})
	c.Long = "Sets the roles of a subject and replaces those that it has. SUBJECT is token:NAME, jwt:NAME, certificate:NAME, group:NAME or anonymous. " +
		"The first binding of the role " + access.RoleAdmin + " turns role checks on for every call. The last subject that has the role cannot lose it.\n\n" +
		"  hostd binding put token:ci invoker"
	cli.Before(c, func(args []string) error {
		if err := (access.Binding{Subject: args[0], Roles: args[1:]}).Check(); err != nil {
			return cli.Usage(err)
		}
		return nil
	})
	return c
}

func newBindingRemove(std cli.Stdio) *cobra.Command {
	return cli.Order(std, "rm SUBJECT", "Remove all roles of a subject", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		return args[0] + " has no roles", s.DeleteRoleBinding(ctx, args[0])
	})
}
