// Command hostd runs a node or a small cluster for development, and is the
// client of both: hostd NOUN VERB. It has no logic of its own: it turns
// arguments into calls of package host and of the API, and prints the results,
// data to stdout and messages to stderr. The processes that it starts end with
// it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hostd/hostd/cmd/hostd/internal/bench"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	if child, err := bench.RunChild(ctx, os.Args[1:]); child {
		if err != nil {
			fmt.Fprintln(os.Stderr, "hostd:", err)
			os.Exit(cli.ExitFailed)
		}
		return
	}
	code := run(ctx, os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	os.Exit(code)
}
