package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
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
