package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/licenses"
)

func newLicenses(std cli.Stdio) *cobra.Command {
	return cli.Leaf("licenses", "Print the licenses of the software in this program", 0, 0, func(context.Context, *cobra.Command, []string) error {
		text, err := licenses.Text()
		if err != nil {
			return err
		}
		_, err = io.WriteString(std.Out, text)
		return err
	})
}

// commandDoc describes a command to the program that generates manual pages, so
// that the generator is not linked into this program.
type commandDoc struct {
	Use      string
	Short    string
	Long     string       `json:",omitempty"`
	Example  string       `json:",omitempty"`
	Flags    []flagDoc    `json:",omitempty"`
	Commands []commandDoc `json:",omitempty"`
}

type flagDoc struct {
	Name      string
	Shorthand string `json:",omitempty"`
	Value     string // type of the flag's value
	Default   string
	Usage     string
}

func newCommands(std cli.Stdio) *cobra.Command {
	c := cli.Leaf("commands", "Print all commands and flags as JSON", 0, 0, func(_ context.Context, c *cobra.Command, _ []string) error {
		return cli.WriteJSON(std.Out, describe(c.Root()), "  ")
	})
	c.Hidden = true
	return c
}

func describe(c *cobra.Command) commandDoc {
	d := commandDoc{Use: c.Use, Short: c.Short, Long: c.Long, Example: c.Example}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			d.Flags = append(d.Flags, flagDoc{f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.Usage})
		}
	})
	for _, below := range c.Commands() {
		if !below.Hidden {
			d.Commands = append(d.Commands, describe(below))
		}
	}
	return d
}
