package credential

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// NewContext returns the commands for contexts.
func NewContext(std cli.Stdio) *cobra.Command {
	return cli.Group("context", "Manage contexts, the named clusters that commands connect to",
		newContextList(std), newContextUse(std), newContextSet(std), newContextRemove(std))
}

func newContextList(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	c := cli.Leaf("ls", "List contexts; an asterisk marks the current one", 0, 0, func(context.Context, *cobra.Command, []string) error {
		all, err := cli.LoadContexts()
		if err != nil {
			return err
		}
		return out.Print(all, func(w io.Writer) {
			cli.Table(w, "\tNAME\tADDR\tTOKEN FILE", func(row func(...any)) {
				for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
					mark := ""
					if name == all.Current {
						mark = "*"
					}
					row(mark, name, all.Contexts[name].Addr, all.Contexts[name].TokenFile)
				}
			})
		})
	})
	out = cli.AddOutput(c, std)
	return c
}

// changeContexts returns a command that changes the contexts; the text that
// change returns is printed on standard error.
func changeContexts(std cli.Stdio, use, short string, change func(all *cli.Contexts, name string) (string, error)) *cobra.Command {
	return cli.Leaf(use, short, 1, 1, func(_ context.Context, _ *cobra.Command, args []string) error {
		all, err := cli.LoadContexts()
		if err != nil {
			return err
		}
		done, err := change(&all, args[0])
		if err != nil {
			return err
		}
		if err := all.Save(); err != nil {
			return err
		}
		fmt.Fprintln(std.Err, done)
		return nil
	})
}

func newContextUse(std cli.Stdio) *cobra.Command {
	return changeContexts(std, "use NAME", "Select the current context", func(all *cli.Contexts, name string) (string, error) {
		if _, ok := all.Contexts[name]; !ok {
			return "", cli.Usagef("context %q does not exist; 'hostd context ls' lists the contexts", name)
		}
		all.Current = name
		return "switched to context " + name, nil
	})
}

func newContextRemove(std cli.Stdio) *cobra.Command {
	return changeContexts(std, "rm NAME", "Remove a context, but none of the files that it refers to", func(all *cli.Contexts, name string) (string, error) {
		if _, ok := all.Contexts[name]; !ok {
			return "", cli.Usagef("context %q does not exist; 'hostd context ls' lists the contexts", name)
		}
		delete(all.Contexts, name)
		if all.Current == name {
			all.Current = ""
		}
		return "context " + name + " removed", nil
	})
}

func newContextSet(std cli.Stdio) *cobra.Command {
	var set cli.Context
	c := changeContexts(std, "set NAME", "Create or replace a context", func(all *cli.Contexts, name string) (string, error) {
		if name == "" || set.Addr == "" {
			return "", cli.Usagef("a context needs a name and --addr")
		}
		for _, path := range []*string{&set.TokenFile, &set.CACert, &set.Cert, &set.Key} {
			if *path == "" {
				continue
			}
			var err error
			if *path, err = filepath.Abs(*path); err != nil {
				return "", err
			}
		}
		all.Contexts[name] = set
		if len(all.Contexts) == 1 {
			all.Current = name
		}
		return "context " + name + " set", nil
	})
	f := c.Flags()
	f.StringVar(&set.Addr, "addr", "", "comma-separated `addresses` of nodes")
	f.StringVar(&set.TokenFile, "token-file", "", "`file` with the token to authenticate with, as written by 'hostd token create --out'")
	f.StringVar(&set.CACert, "cacert", "", "`file` with the certificate authorities of the nodes, in PEM")
	f.StringVar(&set.Cert, "cert", "", "`file` with the client certificate, in PEM")
	f.StringVar(&set.Key, "key", "", "`file` with the private key of the client certificate, in PEM")
	return c
}
