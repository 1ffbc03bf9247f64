package roles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/sharding/access"
)

// maxRulesBytes limits a file of rules.
const maxRulesBytes = 1 << 20

// NewRole returns the commands for roles.
func NewRole(std cli.Stdio) *cobra.Command {
	return cli.Group("role", "Manage roles, the sets of rules that callers are granted",
		newRoleList(std), newRoleGet(std), newRolePut(std), newRoleRemove(std))
}

func newRoleList(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "ls", "List the roles of the cluster", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (*clusterv1.ListRolesResponse, error) {
		roles, err := s.Roles(ctx)
		return &clusterv1.ListRolesResponse{Roles: roles}, err
	}, func(w io.Writer, v *clusterv1.ListRolesResponse) {
		cli.Table(w, "ROLE\tRULES\tQUOTAS\tREVISION\tBUILT IN", func(row func(...any)) {
			for _, r := range v.GetRoles() {
				row(r.GetName(), len(r.GetRules()), quotasText(r.GetQuotas()), r.GetRevision(), r.GetBuiltIn())
			}
		})
	})
}

// newRoleGet returns the command get, which replaces an earlier command
// describe.
func newRoleGet(std cli.Stdio) *cobra.Command {
	c := cli.Ask(std, "get ROLE", "Print the rules of a role", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (*clusterv1.Role, error) {
		roles, err := s.Roles(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range roles {
			if r.GetName() == args[0] {
				return r, nil
			}
		}
		return nil, cli.Hint(fmt.Errorf("the role %q does not exist", args[0]), "'hostd role ls' lists the roles.")
	}, func(w io.Writer, v *clusterv1.Role) {
		cli.Table(w, "EFFECT\tVERBS\tTYPES\tID PREFIXES\tCOMMANDS", func(row func(...any)) {
			for _, r := range v.GetRules() {
				row(r.GetEffect(), all(r.GetVerbs()), all(r.GetTypes()), all(r.GetIdPrefixes()), all(r.GetCommands()))
			}
		})
		if q := v.GetQuotas(); q != nil {
			fmt.Fprintln(w, "quotas:", quotasText(q))
		}
	})
	c.Aliases = []string{"describe"}
	return c
}

// all formats a list of a rule: an empty list matches everything.
func all(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ",")
}

func newRolePut(std cli.Stdio) *cobra.Command {
	var file string
	var limits []string
	var rules []*clusterv1.RoleRule
	var quotas *clusterv1.RoleQuotas
	c := cli.Order(std, "put ROLE --file FILE", "Create or replace a role", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		revision, err := client.PutRoleWithQuotas(ctx, s.Client, args[0], quotas, rules...)
		return fmt.Sprintf("revision %d", revision), err
	})
	c.Long = "Creates a role, or replaces the role of that name. FILE contains its rules as a JSON array of objects:\n\n" +
		`  [{"effect": "allow", "verbs": ["invoke"], "types": ["order"], "idPrefixes": ["${principal}/"], "commands": ["add"]}]` + "\n\n" +
		"A rule matches everything on a list that it leaves out. Use - to read standard input.\n\n" +
		"--quota limits what each caller with the role may use on each node. A role with quotas needs no rules.\n\n" +
		"  hostd role put small --quota commands-per-second=100,streams=8"
	c.Flags().StringVar(&file, "file", "", "`file` with the rules in JSON; - reads standard input")
	c.Flags().StringSliceVar(&limits, "quota", nil, "comma-separated `quotas` of the role, each NAME=NUMBER or NAME=unlimited: "+strings.Join(access.QuotaNames[:], ", "))
	cli.Before(c, func(args []string) (err error) {
		if quotas, err = parseQuotas(limits); err != nil {
			return err
		}
		if file == "" && quotas == nil {
			return cli.Usagef("--file must be set to the file with the rules")
		}
		if file == "" {
			if err := access.CheckRoleName(args[0]); err != nil {
				return cli.Usage(err)
			}
			return nil
		}
		rules, err = readRules(c.Context(), args[0], file, std.In)
		return err
	})
	return c
}

// readRules reads the rules of a role. Rules that the nodes would reject are a
// fault of the command line.
func readRules(ctx context.Context, name, file string, in io.Reader) ([]*clusterv1.RoleRule, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(in, maxRulesBytes))
	} else {
		text, err = cli.ReadFile(ctx, file, maxRulesBytes)
	}
	if err != nil {
		return nil, cli.Usage(err)
	}
	role := access.Role{Name: name}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&role.Rules); err != nil {
		return nil, cli.Usagef("%s must be a JSON array of rules: %v", file, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, cli.Usagef("%s has data after the array of rules", file)
	}
	if err := role.Check(); err != nil {
		return nil, cli.Usage(err)
	}
	var out []*clusterv1.RoleRule
	for _, r := range role.Rules {
		out = append(out, &clusterv1.RoleRule{Effect: string(r.Effect), Verbs: r.Verbs, Types: r.Types, IdPrefixes: r.IDPrefixes, Commands: r.Commands})
	}
	return out, nil
}

func newRoleRemove(std cli.Stdio) *cobra.Command {
	return cli.Order(std, "rm ROLE", "Remove a role that no binding uses", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		return args[0] + " is not a role", s.DeleteRole(ctx, args[0])
	})
}
