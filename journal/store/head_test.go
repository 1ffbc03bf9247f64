package store

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/journal"
)

// TestHeadBytes pins the bytes of entity rows.
func TestHeadBytes(t *testing.T) {
	h := Head{Sequence: 1, Last: journal.Position{Index: 2}, UpdatedAt: 5, Records: 1, Bytes: 9, Snapshots: Snapshots{1}}
	const fixed = "0100000000000000" + "%064d" + "0200000000000000" + "00000000" + "0500000000000000" + "0100000000000000" + "0900000000000000" + "01" + "0100000000000000"
	for _, tt := range []struct {
		stands journal.Position
		want   string
	}{
		{journal.Position{}, "02" + fixed},
		{journal.Position{Index: 2, Ordinal: 3}, "22" + fixed + "0200000000000000" + "03000000"},
	} {
		h.Stands = tt.stands
		body := AppendHead(nil, &h)
		if want := fmt.Sprintf(tt.want, 0); fmt.Sprintf("%x", body) != want {
			t.Errorf("%x, want %s", body, want)
		}
		if got, err := DecodeHead(body); err != nil || got != h {
			t.Errorf("%+v %v", got, err)
		}
	}
	h.Snapshots = Snapshots{} // without snapshots the row has no extra bytes
	if body := AppendHead(nil, &h); body[0] != 0 || len(body) != headBytes {
		t.Errorf("%x", body)
	}
}
