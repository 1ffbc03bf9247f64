package devcluster

import (
	"bufio"
	"context"
	"io"
)

// keys sends a value for each line that is typed. The channel is closed at the
// end of the input. A blocked read cannot be interrupted, so it and its
// goroutine may last until the process ends.
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
