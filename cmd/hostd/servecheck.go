package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
)

var errCheck = errors.New("serve --check: the node would not start or would not serve")

// checkServe checks what a node with this configuration needs to start, and
// prints one line per subject. unknown is the error for an environment
// variable that no command reads. Other commands only warn about such a
// variable, but the check fails.
func checkServe(cfg config.Config, unknown error, w io.Writer) error {
	failed := false
	line := func(subject string, err error) {
		said := "ok"
		if err != nil {
			said, failed = cli.Clean(err.Error()), true
		}
		fmt.Fprintf(w, "%s: %s\n", subject, said)
	}
	line("environment", unknown)
	for _, f := range host.Check(cfg) {
		line(f.Subject, f.Err)
	}
	if failed {
		return errCheck
	}
	return nil
}
