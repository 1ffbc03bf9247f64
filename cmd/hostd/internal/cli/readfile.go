package cli

import (
	"context"
	"fmt"
	"io"
	"os"
)

// ReadFile reads a file that the command line names, of at most most bytes. It
// may be a pipe, such as /dev/stdin or the shell's <(COMMAND); ReadFile waits
// for its writer until ctx ends.
func ReadFile(ctx context.Context, path string, most int) ([]byte, error) {
	type content struct {
		text []byte
		err  error
	}
	read := make(chan content, 1)
	// Nothing interrupts the wait for the writer of a pipe. If there is none,
	// the goroutine ends with the process, soon after ctx.
	go func() {
		text, err := readAtMost(path, most)
		read <- content{text, err}
	}()
	select {
	case c := <-read:
		return c.text, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: the file is incomplete: %w", path, ctx.Err())
	}
}

func readAtMost(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(text) > most {
		err = fmt.Errorf("%s: is larger than %d bytes", path, most)
	}
	return text, err
}
