package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestStopEndsInItsTime: a part that does not close, such as one whose disk is
// gone, does not keep the process.
func TestStopEndsInItsTime(t *testing.T) {
	failed := errors.New("failed")
	err := stopWithin(t.Context(), func(context.Context) error { return failed }, time.Minute, time.Minute)
	if !errors.Is(err, failed) {
		t.Errorf("a stop that fails: %v", err)
	}
	hangs := make(chan struct{})
	defer close(hangs)
	err = stopWithin(t.Context(), func(ctx context.Context) error {
		<-ctx.Done() // it is told when its time is over
		<-hangs
		return nil
	}, time.Millisecond, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "did not stop in 2ms") {
		t.Errorf("a stop that hangs: %v", err)
	}
}
