package raftgroup

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
)

func TestTransferHeads(t *testing.T) {
	h := goldenHeader()
	for _, want := range []wire.TransferHead{{}, {IsQuestion: true, Digest: statefile.Digest{1}}, {Offset: 1 << 40, Digest: statefile.Digest{2}}} {
		var head []byte
		if want.Digest != (statefile.Digest{}) {
			head = want.Encode()
		}
		got, header, err := wire.ReadTransfer(head, bytes.NewReader(h.Append(nil)))
		if err != nil || got != want || header.Index != h.Index {
			t.Errorf("%+v, %+v: %v", got, header, err)
		}
		for n := 1; n < len(head); n++ {
			if _, _, err := wire.ReadTransfer(head[:n], bytes.NewReader(h.Append(nil))); !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("%d bytes of a head: %v", n, err)
			}
		}
	}
	later := (&wire.TransferHead{Digest: statefile.Digest{1}}).Encode()
	later[0]++
	if _, _, err := wire.ReadTransfer(later, bytes.NewReader(h.Append(nil))); !errors.Is(err, journal.ErrUnsupported) {
		t.Errorf("a later version: %v", err)
	}
	for _, want := range []wire.TransferAnswer{{}, {Wait: true}, {Offset: 7}} {
		if got, err := wire.ReadAnswer(want.Encode()); err != nil || got != want {
			t.Errorf("%+v, want %+v: %v", got, want, err)
		}
	}
	if got, err := wire.ReadAnswer(nil); err != nil || got != (wire.TransferAnswer{}) {
		t.Errorf("of an earlier release: %+v, %v", got, err)
	}
	if _, err := wire.ReadAnswer([]byte{wire.HeadVersion, 0, 1}); err == nil {
		t.Error("a short answer was taken")
	}
}
