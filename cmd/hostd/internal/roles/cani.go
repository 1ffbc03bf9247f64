package roles

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// NewAuth returns the commands about the caller's own permissions.
func NewAuth(std cli.Stdio) *cobra.Command {
	return cli.Group("auth", "Check your own identity and permissions", newCanI(std), newWhoAmI(std))
}

// answer is a node's answer about its caller's permissions.
type answer struct {
	*cli.Object
	res *clusterv1.CheckAccessResponse
}

// Remark implements cli.Remark. The exit code is 1 if the caller lacks the
// permission.
func (a *answer) Remark() (line string, failure error) {
	if !a.res.GetAllowed() {
		return a.res.GetReason(), &cli.ExitError{Code: cli.ExitFailed}
	}
	return a.res.GetReason(), nil
}

func newCanI(std cli.Stdio) *cobra.Command {
	c := cli.Ask(std, "can-i [VERB [TYPE[/ID] [COMMAND]]]", "Check whether you are allowed to make a call", 0, 3, func(ctx context.Context, s *cli.Session, args []string) (*answer, error) {
		about := &clusterv1.CheckAccessRequest{}
		for i, into := range []*string{&about.Verb, &about.EntityType, &about.Command} {
			if i < len(args) {
				*into = args[i]
			}
		}
		about.EntityType, about.EntityId, _ = strings.Cut(about.EntityType, "/")
		res, err := s.CanI(ctx, about)
		if err != nil {
			return nil, err
		}
		return &answer{cli.View(res), res}, nil
	}, func(w io.Writer, a *answer) {
		fmt.Fprintln(w, map[bool]string{true: "yes", false: "no"}[a.res.GetAllowed()])
		fmt.Fprintln(w, cli.Clean(fmt.Sprintf("%s, groups %s, roles %s", subject(a.res), all(a.res.GetGroups()), all(a.res.GetRoles()))))
	})
	c.Long = "Checks whether you are allowed to make a call and prints the roles that decide it. Without VERB it prints who the cluster thinks you are. It exits with 1 if you are not allowed.\n\n" +
		"  hostd auth can-i invoke order/al-1 add\n  hostd auth can-i read '*'"
	return c
}

// subject returns the caller as bindings name it.
func subject(r *clusterv1.CheckAccessResponse) string {
	if r.GetName() == "" {
		return r.GetKind()
	}
	return r.GetKind() + ":" + r.GetName()
}

// caller is the caller's identity as it is printed.
type caller struct {
	Subject string   `json:"subject"`
	Kind    string   `json:"kind"`
	Name    string   `json:"name,omitempty"`
	Groups  []string `json:"groups"`
	Roles   []string `json:"roles"`
	reason  string
}

// Remark implements cli.Remark. If role checks are off, the node gives a
// reason.
func (c *caller) Remark() (line string, failure error) { return c.reason, nil }

// newWhoAmI returns the command that prints the caller's identity.
func newWhoAmI(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "whoami", "Print your identity and your roles", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (*caller, error) {
		res, err := s.CanI(ctx, &clusterv1.CheckAccessRequest{})
		if err != nil {
			return nil, err
		}
		c := &caller{Subject: subject(res), Kind: res.GetKind(), Name: res.GetName(), Groups: append([]string{}, res.GetGroups()...), Roles: append([]string{}, res.GetRoles()...)}
		if len(c.Roles) == 0 {
			c.reason = res.GetReason()
		}
		return c, nil
	}, func(w io.Writer, c *caller) {
		cli.Table(w, "SUBJECT\tGROUPS\tROLES", func(row func(...any)) {
			row(c.Subject, all(c.Groups), all(c.Roles))
		})
	})
}
