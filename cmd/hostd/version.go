package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host"
)

// versionText is the release, with what it was built by and for.
func versionText() string {
	return fmt.Sprintf("hostd %s (%s, %s/%s)", host.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersion(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	c := cli.Leaf("version", "Print the release", 0, 0, func(context.Context, *cobra.Command, []string) error {
		v := struct {
			Version string `json:"version"`
			Go      string `json:"go"`
			System  string `json:"system"`
		}{host.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		return out.Print(v, func(w io.Writer) { fmt.Fprintln(w, versionText()) })
	})
	out = cli.AddOutput(c, std)
	return c
}
