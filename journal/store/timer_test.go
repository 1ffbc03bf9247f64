package store

import (
	"encoding/hex"
	"reflect"
	"testing"

	"github.com/hostd/hostd/journal"
)

// TestTimersRoundTrip checks that a timer of an earlier release, a schedule,
// and a timer of a traced command decode to the encoded values.
func TestTimersRoundTrip(t *testing.T) {
	schedule := journal.AppendSchedule(nil, &journal.Schedule{Expression: []byte("@daily"), Zone: []byte("Asia/Tokyo"), Missed: 2, Made: 1})
	for want, timer := range map[string]Timer{
		"05636c6f73657b7d": {Due: 5, Command: []byte("close"), Payload: []byte("{}")},
		"00150006406461696c790a417369612f546f6b796f02010005636c6f73657b7d": {Due: 5, Command: []byte("close"), Payload: []byte("{}"), Schedule: schedule},
		"0000000100000000000000000000000000000203000000000000040105636c6f73657b7d": {Due: 5, Command: []byte("close"), Payload: []byte("{}"),
			Trace: &journal.TraceContext{Trace: [16]byte{1, 15: 2}, Span: [8]byte{3, 7: 4}, Flags: 1}},
	} {
		body := AppendTimer(nil, &timer)
		if got := hex.EncodeToString(body); got != want {
			t.Errorf("%s is written, want %s", got, want)
		}
		if back, err := DecodeTimer(body, 5); err != nil || !reflect.DeepEqual(back, timer) {
			t.Errorf("%+v is read as %+v: %v", timer, back, err)
		}
		for n := range len(body) - len(timer.Payload) {
			if back, err := DecodeTimer(body[:n], 5); err == nil {
				t.Errorf("%d bytes of %x are %+v", n, body, back)
			}
		}
	}
}
