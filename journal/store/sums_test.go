package store

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/journal"
)

// TestMarksWithSumsRoundTrip: an applied state with sums decodes to the same
// value, and fails to decode if it is truncated anywhere.
func TestMarksWithSumsRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 1 << sumClasses {
		a := Applied{Index: 1, Term: 2, Clock: -3, Ordered: 4, Entities: 5, Heads: 6, Revision: 7, Bytes: 8, Summed: true}
		for i := range a.Sums {
			if n&(1<<i) != 0 {
				a.Sums[i] = Sum{rng.Uint64(), rng.Uint64(), rng.Uint64()}
			}
		}
		body := AppendApplied(nil, &a)
		if got, err := DecodeApplied(body); err != nil || got != a {
			t.Fatalf("%+v %v, want %+v", got, err, a)
		}
		for cut := range len(body) {
			if got, err := DecodeApplied(body[:cut]); err == nil && got.Summed {
				t.Fatalf("cut to %d bytes: %+v", cut, got)
			}
		}
		if _, err := DecodeApplied(append(body, 0)); !errors.Is(err, journal.ErrDamaged) {
			t.Fatalf("a byte more: %v", err)
		}
	}
}

// TestSumsHaveNoOrder: sums do not depend on the order of additions, and
// removing a row restores the previous sum.
func TestSumsHaveNoOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	rows := make([]RowHash, 200)
	var a Sum
	for i := range rows {
		rows[i] = RowHash{rng.Uint64(), rng.Uint64()}
		a.Add(rows[i])
	}
	b := Sum{}
	for _, i := range rng.Perm(len(rows)) {
		b.Add(rows[i])
	}
	if a != b || a.Rows != 200 {
		t.Fatalf("%v and %v", a, b)
	}
	for _, i := range rng.Perm(len(rows)) {
		b.Take(rows[i])
	}
	if b != (Sum{}) {
		t.Fatalf("left: %v", b)
	}
}

// TestSumsStayWhatTheyAre: row hashes and the checksum are stored and sent, so
// they must never change.
func TestSumsStayWhatTheyAre(t *testing.T) {
	var w RowHasher
	var s Sums
	h := Head{Sequence: 7, Hash: journal.Hash{1, 2}, Last: journal.Position{Index: 9, Ordinal: 1}, UpdatedAt: 5, Records: 3, Bytes: 400, Timers: 1}
	s[SumHeads].Add(w.Head("t\x00id\x00", &h))
	s[SumOutbox].Add(w.Row(ClassOutbox, []byte("rest"), []byte("body")))
	a := Applied{Index: 1, Summed: true, Sums: s}
	const want = "050100000000000000" // groups, rows; see FORMAT.md
	if got := hex.EncodeToString(AppendApplied(nil, &a)[appliedBytes:]); got[:len(want)] != want || got[len(want):] != goldenSums {
		t.Errorf("sums: %s", got)
	}
	if d := s.Digest(); hex.EncodeToString(d[:]) != goldenDigest {
		t.Errorf("digest: %x", d)
	}
	h.Stands, h.Set = journal.Position{Index: 3}, HeadTimers("\x01a12345678")
	if w.Head("t\x00id\x00", &h).Lo != s[SumHeads].Lo {
		t.Error("what a release may lay out as it likes counts")
	}
	if s.Differ(&Sums{}) == "" || s.Differ(&s) != "" {
		t.Error("two sums differ, or not")
	}
}

const (
	goldenSums   = "13c5a0fc161f8f75ea70e33bef143a790100000000000000a6a3e0eea5d0f65216b91ede8ed901fd"
	goldenDigest = "b8fbec1d149a836e9d76ea69e4ca7b0f"
)
