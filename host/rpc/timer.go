package rpc

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hostd/hostd/abi"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/journal"
)

// timer shows a timer that is set.
func timer(t *journal.Timer) *entityv1.Timer {
	out := &entityv1.Timer{Name: t.Name, Due: timestamppb.New(time.Unix(0, t.Due)), Command: string(t.Command)}
	if s := t.Schedule; s != nil {
		out.Schedule, out.TimeZone, out.Missed = string(s.Expression), string(s.Zone), abi.Missed(s.Missed).String()
	}
	return out
}
