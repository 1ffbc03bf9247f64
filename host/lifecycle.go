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

// lifecycle is what is open of a node, in the order opened, and why it ends. It
// is safe for concurrent use, but for add and watch: whoever opens calls them.
type lifecycle struct {
	logger   *slog.Logger
	stopping atomic.Bool
	failed   chan error // one slot: why the node cannot go on
	closers  []closer   // of what is open, in the order opened
	once     sync.Once
	err      error
}

// closer ends one stage.
type closer struct {
	name  string
	close func(context.Context) error
}

func newLifecycle(logger *slog.Logger) *lifecycle {
	return &lifecycle{logger: logger, failed: make(chan error, 1)}
}

// add has a part closed before all that were added before it.
func (l *lifecycle) add(name string, close func(context.Context) error) {
	l.closers = append(l.closers, closer{name, close})
}

// watch runs something until it is closed.
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

// end says why the node is to be stopped; the first reason counts.
func (l *lifecycle) end(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

// stop closes what is open in the reverse order, once, and returns all that
// failed.
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
