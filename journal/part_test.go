package journal

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
)

// sampleParts returns one part of each kind except records and snapshots.
func sampleParts() (kinds []PartKind, data [][]byte) {
	e, o := sharding.EntityID{Type: "account", ID: "c 1"}, sharding.EntityID{Type: "cart", ID: "é"}
	add := func(kind PartKind, b []byte) { kinds, data = append(kinds, kind), append(data, b) }
	add(PartTimer, AppendPartialTimer(nil, &PartialTimer{Entity: e, Name: []byte("t"), Due: -3, Command: []byte("do"), Payload: []byte("p")}))
	schedule := AppendSchedule(nil, &Schedule{Expression: []byte("* * * * *"), Zone: []byte("UTC"), Missed: 1, Made: 2})
	add(PartTimer, AppendPartialTimer(nil, &PartialTimer{Entity: e, Name: []byte("s"), Due: 9, Command: []byte("do"), Schedule: schedule}))
	add(PartEnd, AppendEntityEnd(nil, &EntityEnd{Entity: e, Sequence: 7, Hash: Hash{1, 31: 9}, Records: 5, Snapshots: 1, Timers: 2}))
	add(PartMessage, AppendTransfer(nil, &Transfer{Entity: e, Body: []byte("stored")}))
	add(PartPair, AppendPartCount(nil, &Count{Entity: e, Other: o, Number: 3}))
	add(PartInbox, AppendPartCount(nil, &Count{Entity: o, Other: e, Number: 2}))
	add(PartDeadLetter, AppendTransfer(nil, &Transfer{Entity: o, Body: []byte("letter")}))
	return kinds, data
}

func TestGoldenImport(t *testing.T) {
	i := Import{ID: ImportID{1, 15: 16}, Chunk: 258, Last: true}
	var out strings.Builder
	kinds, data := sampleParts()
	for n := range data {
		i.Parts = AppendPart(i.Parts, kinds[n], data[n])
		fmt.Fprintf(&out, "part %d %s\n", kinds[n], hex.EncodeToString(AppendPart(nil, kinds[n], data[n])))
	}
	body := AppendImport(nil, &i)
	fmt.Fprintf(&out, "import %s\n", hex.EncodeToString(body))
	const path = "testdata/import.txt"
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the format changed; got\n%s", out.String())
	}
	back, err := DecodeImport(body)
	if err != nil || back.ID != i.ID || back.Chunk != i.Chunk || !back.Last {
		t.Fatalf("%+v, %v", back, err)
	}
	for n, rest := 0, back.Parts; len(rest) > 0; n++ {
		var kind PartKind
		var part []byte
		if kind, part, rest, err = NextPart(rest); err != nil || kind != kinds[n] || string(part) != string(data[n]) {
			t.Fatalf("part %d: %d %x %v", n, kind, part, err)
		}
	}
}

// TestPartsCutShort truncates parts at every length, and checks that decoding
// reports damage.
func TestPartsCutShort(t *testing.T) {
	kinds, data := sampleParts()
	decode := func(kind PartKind, b []byte) (err error) {
		switch kind {
		case PartTimer:
			_, err = DecodePartialTimer(b)
		case PartEnd:
			_, err = DecodeEntityEnd(b)
		case PartMessage, PartDeadLetter:
			_, err = DecodeTransfer(b)
		default:
			_, err = DecodePartCount(b)
		}
		return err
	}
	for n, kind := range kinds {
		if err := decode(kind, data[n]); err != nil {
			t.Errorf("part %d: %v", kind, err)
		}
		open := 1 // these end with a variable-length field
		if kind == PartTimer || kind == PartMessage || kind == PartDeadLetter {
			open = 7
		}
		for cut := range len(data[n]) - open + 1 {
			if err := decode(kind, data[n][:cut]); !errors.Is(err, ErrDamaged) {
				t.Errorf("part %d of %d bytes: %v", kind, cut, err)
			}
		}
		framed := AppendPart(nil, kind, data[n])
		for cut := 1; cut < len(framed); cut++ {
			if _, _, _, err := NextPart(framed[:cut]); !errors.Is(err, ErrDamaged) {
				t.Errorf("a framed part of %d bytes: %v", cut, err)
			}
		}
	}
	if _, _, _, err := NextPart([]byte{9, 0, 0, 0, 0}); !errors.Is(err, ErrUnsupported) {
		t.Errorf("an unknown part: %v", err)
	}
	for _, bad := range [][]byte{{}, {1}, append([]byte{2}, make([]byte, 25)...), append(append([]byte{1}, make([]byte, 24)...), 4)} {
		if _, err := DecodeImport(bad); err == nil {
			t.Errorf("%x is an import", bad)
		}
	}
}
