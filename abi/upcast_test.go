package abi

import (
	"errors"
	"strings"
	"testing"
)

// TestUpcastEvent checks that only a single event is a valid result.
func TestUpcastEvent(t *testing.T) {
	const most = 8
	name, payload, err := UpcastEvent(AppendEvent(nil, "placed.v2", []byte("12345678")), most)
	if err != nil || string(name) != "placed.v2" || string(payload) != "12345678" {
		t.Errorf("%q %q, %v", name, payload, err)
	}
	if name, payload, err := UpcastEvent(AppendEvent(nil, "emptied", nil), most); err != nil || string(name) != "emptied" || len(payload) != 0 {
		t.Errorf("%q %q, %v", name, payload, err)
	}
	for says, frames := range map[string][]byte{
		"there is no event":   nil,
		"is not an event":     AppendReply(nil, []byte("1")),
		"cut off":             AppendEvent(nil, "placed", nil)[:7],
		"type is not a valid": AppendEvent(nil, "a\nb", nil),
		"too large":           AppendEvent(nil, "placed", []byte("123456789")),
		"more than one":       AppendEvent(AppendEvent(nil, "placed", nil), "placed", nil),
		"its type is not":     AppendEvent(nil, "", nil),
	} {
		if _, _, err := UpcastEvent(frames, most); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
