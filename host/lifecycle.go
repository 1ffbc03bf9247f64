package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// lifecycle is the list of a node's open parts, in the order of opening, and
// the reason why the node ends. It is safe for concurrent use, except for add
// and watch, which only the goroutine that opens the node may call.
type lifecycle struct {
	logger   *slog.Logger
	stopping atomic.Bool
	failed   chan error // one slot: why the node cannot continue
	closers  []closer   // the open parts, in the order of opening
	once     sync.Once
	err      error
}

// closer closes one part.
type closer struct {
	name  string
	close func(context.Context) error
}

func newLifecycle(logger *slog.Logger) *lifecycle {
	return &lifecycle{logger: logger, failed: make(chan error, 1)}
}

// add registers a part. stop closes it before all parts added earlier.
func (l *lifecycle) add(name string, close func(context.Context) error) {
	l.closers = append(l.closers, closer{name, close})
}

// watch runs a function in a goroutine until stop cancels its context, and
// registers it as a part.
func (l *lifecycle) watch(name string, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	l.add(name, func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
}

// End reports why the node has to be stopped. Only the first reason is kept.
func (l *lifecycle) End(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

// Stopping reports whether the node is being stopped.
func (l *lifecycle) Stopping() bool { return l.stopping.Load() }

// stop closes all parts in reverse order and returns their errors joined.
// Further calls return the same result.
func (l *lifecycle) stop(ctx context.Context) error {
	l.once.Do(func() {
		l.stopping.Store(true)
		var errs []error
		for i := len(l.closers) - 1; i >= 0; i-- {
			began := time.Now()
			if err := l.closers[i].close(ctx); err != nil {
				errs = append(errs, fmt.Errorf("stop %s: %w", l.closers[i].name, err))
			}
			l.logger.Debug("stopped", "part", l.closers[i].name, "duration", time.Since(began))
		}
		l.err = errors.Join(errs...)
	})
	return l.err
}
