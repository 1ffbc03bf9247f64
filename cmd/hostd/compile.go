package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/host/engine"
)

// newCompile is the process in which a node compiles what was uploaded.
func newCompile(std stdio) *cobra.Command {
	c := leaf(compileCommand, "Compile one module for a node", 0, 0, func(_ context.Context, c *cobra.Command, _ []string) error {
		if code := engine.CompileChild(std.in, std.err); code != 0 {
			return &exitError{code}
		}
		return nil
	})
	c.Hidden = true
	return c
}

// compileCommand is the argument of config.CompileProgram.
const compileCommand = "compile-module"

// exitError ends the program with a code that another process reads, and
// without a word.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
