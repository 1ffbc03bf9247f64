package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/guest"
)

// newCompile returns the command of the process in which a node compiles
// uploaded modules.
func newCompile(std cli.Stdio) *cobra.Command {
	c := cli.Leaf(compileCommand, "Compile one module for a node", 0, 0, func(_ context.Context, c *cobra.Command, _ []string) error {
		if code := guest.CompileChild(std.In, std.Err); code != 0 {
			return &cli.ExitError{Code: code}
		}
		return nil
	})
	c.Hidden = true
	return c
}

// compileCommand is the argument of config.CompileProgram.
const compileCommand = "compile-module"
