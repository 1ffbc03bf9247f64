package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/host"
)

func newVersion(std stdio) *cobra.Command {
	var out *output
	c := leaf("version", "Print the release", 0, 0, func(context.Context, *cobra.Command, []string) error {
		if err := out.check(); err != nil {
			return err
		}
		v := struct {
			Version string `json:"version"`
			Go      string `json:"go"`
			System  string `json:"system"`
		}{host.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		return out.print(v, func(w io.Writer) { fmt.Fprintf(w, "hostd %s (%s, %s)\n", v.Version, v.Go, v.System) })
	})
	out = addOutput(c, std)
	return c
}
