package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host"
)

// stdStream as the name of a file means standard input or output.
const stdStream = "-"

// exportStream writes an export to standard output and verifies it at the same
// time.
func exportStream(ctx context.Context, std cli.Stdio, export func(context.Context, io.Writer) error) error {
	r, w := io.Pipe()
	verified := make(chan error, 1)
	go func() {
		_, err := host.VerifyArchive(r, func(int64) {})
		r.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		verified <- err
	}()
	p := startProgress(std, "exported", 0)
	defer p.end()
	err := export(ctx, counted{w: io.MultiWriter(std.Out, w), p: p})
	w.CloseWithError(err) // with a nil error, the end of the stream
	if verr := <-verified; err == nil {
		err = verr
	}
	return err
}

// openArchive opens the file of an export. It first copies standard input to a
// temporary file, because an export is read twice. That file is deleted when it
// is closed.
func openArchive(std cli.Stdio, name string) (*os.File, error) {
	if name != stdStream {
		return os.Open(name)
	}
	f, err := os.CreateTemp("", "hostd-import-*")
	if err != nil {
		return nil, err
	}
	p := startProgress(std, "read", 0)
	_, err = io.Copy(f, counted{r: std.In, p: p})
	p.end()
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, errors.Join(fmt.Errorf("read standard input: %w", err), f.Close())
	}
	return f, nil
}
