package store

import (
	"errors"
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

// TestHeadRunBytes pins the bytes at the end of a run's row, with and without
// the other optional fields, and rejects rows with an invalid status.
func TestHeadRunBytes(t *testing.T) {
	status := journal.AppendRunStatus(nil, &journal.RunStatus{State: journal.RunRunning, Steps: 2, Waits: []string{"sleep"}})
	h := Head{Sequence: 1, Run: NewHeadRun(5, status)}
	const run = "0500000000000000" + "01" + "02000000" + "00" + "05" + "736c656570" + "1400"
	for _, tt := range []struct {
		life  uint32
		cutTo journal.Sequence
		want  string
	}{
		{0, 0, run + "04"},
		{3, 7, "0300000000000000" + "0700000000000000" + run + "07"},
	} {
		h.Life, h.CutTo = tt.life, tt.cutTo
		body := AppendHead(nil, &h)
		if got := fmt.Sprintf("%x", body[headBytes:]); got != tt.want || body[0] != headMore {
			t.Errorf("%x %s, want %s", body[0], got, tt.want)
		}
		got, err := DecodeHead(body)
		if err != nil || got != h || got.Run.Began() != 5 || !got.Run.IsOpen() {
			t.Errorf("%+v %v", got, err)
		}
		if s, err := got.Run.Status(); err != nil || s.Steps != 2 || len(s.Waits) != 1 || s.Waits[0] != "sleep" {
			t.Errorf("%+v %v", s, err)
		}
		for _, at := range []int{len(body) - 2, len(body) - 3, len(body) - 15} { // positions of the length and of the state
			bad := append([]byte(nil), body...)
			bad[at] ^= 0x80
			if _, err := DecodeHead(bad); !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("a row with a wrong byte %d is read: %v", at, err)
			}
		}
	}
}
