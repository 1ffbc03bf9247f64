package router

import (
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
)

// A command of a stream waits for a leader until its deadline. If it were given
// up earlier while later commands to its entity wait and run, it could not be
// sent again in its order.
func TestStreamCommandWaitsUntilItsDeadline(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	alone := &request.Request{Deadline: now.Add(10 * time.Second)}
	if at := limitOf(alone, now, time.Second); !at.Equal(now.Add(time.Second)) {
		t.Errorf("a single command is held until %v", at)
	}
	ordered := &request.Request{Deadline: now.Add(10 * time.Second), Route: request.Route{Ordered: true}}
	ordered.Route.Until = limitOf(ordered, now, time.Second)
	if at := due(ordered); !at.Equal(ordered.Deadline) {
		t.Errorf("a command of a stream is held until %v, its deadline is %v", at, ordered.Deadline)
	}
}
