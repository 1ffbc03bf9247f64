package store

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestMessagesKeepTheirTrace pins the body of a message with a trace. A message
// without a trace is encoded as before traces existed, and an invalid trace is
// rejected as damaged.
func TestMessagesKeepTheirTrace(t *testing.T) {
	in := journal.TraceContext{Trace: [16]byte{1, 15: 2}, Span: [8]byte{3, 7: 4}, Flags: 1}
	m := journal.Message{
		ID: journal.ItemID{Index: 9}, Source: sharding.EntityID{Type: "a", ID: "s"}, Destination: sharding.EntityID{Type: "b", ID: "d"},
		Number: 5, At: 6, Command: "go", Payload: []byte("{}"), Hops: 2,
	}
	answer := m
	answer.Answer = true
	if body := AppendMessage(nil, &answer); hex.EncodeToString(body[:8]) != "0500000000000082" {
		t.Errorf("an answer begins with %x", body[:8])
	} else if got, err := DecodeMessage(body, m.ID); err != nil || !reflect.DeepEqual(got, answer) {
		t.Errorf("an answer: %+v, %v", got, err)
	}
	const begin, end = "0500000000000002" + "0600000000000000" + "0161" + "010073" + "0162" + "010064", "02676f" + "0000" + "7b7d"
	const trace = "00" + "01000000000000000000000000000002" + "0300000000000004" + "01"
	for _, tt := range []struct {
		in   *journal.TraceContext
		want string
	}{{nil, begin + end}, {&in, begin + trace + end}} {
		m.Trace = tt.in
		body := AppendMessage(nil, &m)
		if got := hex.EncodeToString(body); got != tt.want {
			t.Errorf("%v:\n got %s\nwant %s", tt.in, got, tt.want)
		}
		got, err := DecodeMessage(body, m.ID)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%v: %+v, %v", tt.in, got, err)
		}
		for n := range len(body) - len(m.Payload) {
			if _, err := DecodeMessage(body[:n], m.ID); !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("%v: %d bytes of it are read: %v", tt.in, n, err)
			}
		}
	}
	m.Trace = &journal.TraceContext{Trace: in.Trace}
	if _, err := DecodeMessage(AppendMessage(nil, &m), m.ID); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("a trace without a span is read: %v", err)
	}
}
