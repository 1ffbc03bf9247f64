package devcluster

import (
	"bufio"
	"context"
	"io"
)

// keys tells of each line that somebody types. The channel is closed when
// nobody can any more. A read that nothing ends goes on until the process ends,
// as does the goroutine that waits for it.
func keys(ctx context.Context, in io.Reader) <-chan struct{} {
	out := make(chan struct{})
	readInBackground()
	go func() {
		defer close(out)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			select {
			case out <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
