package store

import (
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestMessagesKeepTheirToken pins the bodies of a message and of a dead letter
// with a token, with and without a trace.
func TestMessagesKeepTheirToken(t *testing.T) {
	const token, mark = "02000a", "00" + "00000000000000000000000000000000"
	from, to := sharding.EntityID{Type: "a", ID: "s"}, sharding.EntityID{Type: "b", ID: "d"}
	const ends = "0161" + "010073" + "0162" + "010064"
	for _, in := range []*journal.TraceContext{nil, {Trace: [16]byte{15: 2}, Span: [8]byte{3}, Flags: 1}} {
		m := journal.Message{ID: journal.ItemID{Index: 9}, Source: from, Destination: to, Number: 5, At: 6, Command: "go", OnReply: "r", OnReject: "n",
			Payload: []byte("{}"), Trace: in, Token: "\x00\n"}
		body := AppendMessage(nil, &m)
		trace := ""
		if in != nil {
			trace = "00" + "00000000000000000000000000000002" + "0300000000000000" + "01"
		}
		if got, want := hex.EncodeToString(body), "05000000000000000600000000000000"+ends+mark+token+trace+"02676f"+"0172"+"016e"+"7b7d"; got != want {
			t.Errorf("message with token:\n got %s\nwant %s", got, want)
		}
		if got, err := DecodeMessage(body, m.ID); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("message with token: %+v, %v", got, err)
		}
		for n := range len(body) - len(m.Payload) {
			if _, err := DecodeMessage(body[:n], m.ID); !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("%d bytes of a message with a token are read: %v", n, err)
			}
		}
	}
	l := journal.DeadLetter{ID: journal.ItemID{Index: 9}, Source: from, Destination: to, Number: 5, At: 6, Command: "go", Code: "c", Message: "m", Payload: []byte("{}"), Token: "\x00\n"}
	body := AppendDeadLetter(nil, &l)
	if got, want := hex.EncodeToString(body), "05000000000000000600000000000000"+ends+mark+token+"02676f"+"0163"+"01006d"+"7b7d"; got != want {
		t.Errorf("dead letter with token:\n got %s\nwant %s", got, want)
	}
	if got, err := DecodeDeadLetter(body, l.ID); err != nil || !reflect.DeepEqual(got, l) {
		t.Errorf("dead letter with token: %+v, %v", got, err)
	}
	empty := strings.Replace(hex.EncodeToString(AppendDeadLetter(nil, &l)), mark+token, mark+"00", 1)
	if raw, _ := hex.DecodeString(empty); len(raw) == 0 {
		t.Fatal("the token is not where it is expected")
	} else if _, err := DecodeDeadLetter(raw, l.ID); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("an empty token is read: %v", err)
	}
}
