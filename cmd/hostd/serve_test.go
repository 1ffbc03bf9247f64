package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/host"
)

// TestStopIsBoundedInTime checks that a part that cannot be closed, for example
// because its disk is gone, does not keep the process alive.
func TestStopIsBoundedInTime(t *testing.T) {
	failed := errors.New("failed")
	err := stopWithin(t.Context(), func(context.Context) error { return failed }, time.Minute, time.Minute)
	if !errors.Is(err, failed) {
		t.Errorf("a stop that fails: %v", err)
	}
	hangs := make(chan struct{})
	defer close(hangs)
	err = stopWithin(t.Context(), func(ctx context.Context) error {
		<-ctx.Done() // canceled when its time is over
		<-hangs
		return nil
	}, time.Millisecond, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "did not stop within 2ms") {
		t.Errorf("a stop that hangs: %v", err)
	}
}

// TestSlowTasksDoNotPreventARestart checks that a node whose data was moved
// aside starts again although a task of its previous run has not ended.
func TestSlowTasksDoNotPreventARestart(t *testing.T) {
	var tasks sync.WaitGroup
	starts, moves, blocked := 0, 0, make(chan struct{})
	err := serveAgain(t.Context(), func() error {
		tasks.Go(func() { <-blocked })
		if starts++; starts == 1 {
			return fmt.Errorf("stopped: %w", host.ErrOlderCopy)
		}
		return nil
	}, func(moveAside) error {
		moves++
		return nil
	})
	if err != nil || starts != 2 || moves != 1 {
		t.Errorf("%d starts, data moved %d times: %v", starts, moves, err)
	}
	if endsWithin(tasks.Wait, time.Millisecond) {
		t.Error("the blocked tasks have ended")
	}
	close(blocked)
	if !endsWithin(tasks.Wait, time.Minute) {
		t.Error("the tasks do not end")
	}
}
