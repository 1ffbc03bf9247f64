// Command hostd runs a node, a small cluster for development, and is the
// client of both: hostd NOUN VERB. It holds no logic of its own: it turns
// arguments into calls of host and of the API and prints what they answer,
// data to stdout and talk to stderr. The processes that it starts end with it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	os.Exit(code)
}
