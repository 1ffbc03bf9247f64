package journal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/hostd/hostd/journal"
)

// checkView compares a view with the decoded record, field by field.
func checkView(t *testing.T, raw []byte, r *journal.Record) {
	t.Helper()
	var v journal.RecordView
	if err := v.Parse(raw); err != nil {
		t.Fatal(err)
	}
	same := v.Entity() == r.Entity && v.Flags == r.Flags && v.Term == r.Term && v.RecordedAt == r.RecordedAt &&
		v.Expected == r.Expected && v.Prev == r.Prev && bytes.Equal(v.Module, r.Module[:]) && v.CommandHash == r.CommandHash &&
		string(v.CommandID) == string(r.CommandID) && bytes.Equal(v.Reply, r.Reply) && v.EventCount == len(r.Events) && v.Last() == r.Last()
	if !same {
		t.Fatalf("view %+v of record %+v", v, *r)
	}
	c := v.Events()
	for i, e := range r.Events {
		if !c.Next() {
			t.Fatalf("the view ends before event %d", i)
		}
		var tags []byte
		for _, tag := range e.Tags {
			tags = append(append(tags, byte(len(tag))), tag...)
		}
		if string(c.Type) != e.Type || !bytes.Equal(c.Payload, e.Payload) || c.TagCount != len(e.Tags) || !bytes.Equal(c.RawTags(), tags) {
			t.Fatalf("event %d: %+v of %+v", i, c, e)
		}
	}
	if c.Next() {
		t.Fatal("the view has an event too many")
	}
	var chain journal.Chain
	if chain.AfterView(v.Prev, &v) != chain.After(r) {
		t.Fatal("the view chains to another link")
	}
}

func TestRecordRoundTrip(t *testing.T) {
	var all []byte
	for _, r := range records() {
		all = journal.AppendRecord(all, &r)
	}
	var got journal.Record // reused, as replay does
	rest := all
	for i, want := range records() {
		raw, tail, err := journal.SplitRecord(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = tail
		if err := got.Decode(raw); err != nil {
			t.Fatal(err)
		}
		if again := journal.AppendRecord(nil, &got); !bytes.Equal(again, raw) || !bytes.Equal(raw, journal.AppendRecord(nil, &want)) {
			t.Fatalf("record %d: %+v came back as %+v", i, want, got)
		}
		checkView(t, raw, &got)
	}
	if len(rest) != 0 {
		t.Fatalf("%d bytes are left", len(rest))
	}
}

// TestEveryFlippedBitIsSeen: the length or the checksum covers every bit of a
// record.
func TestEveryFlippedBitIsSeen(t *testing.T) {
	r := records()[0]
	raw := journal.AppendRecord(nil, &r)
	for bit := range len(raw) * 8 {
		bad := bytes.Clone(raw)
		bad[bit/8] ^= 1 << (bit % 8)
		got, rest, err := journal.SplitRecord(bad)
		if err == nil {
			t.Errorf("bit %d: split into %d and %d bytes", bit, len(got), len(rest))
		} else if !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("bit %d: %v", bit, err)
		}
	}
}

func TestEveryCutIsSeen(t *testing.T) {
	r := records()[0]
	raw := journal.AppendRecord(nil, &r)
	for n := range raw {
		if _, _, err := journal.SplitRecord(raw[:n]); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
}

// reseal returns a modified record with a matching length and checksum.
func reseal(raw []byte) []byte {
	binary.LittleEndian.PutUint32(raw, uint32(len(raw)-8))
	binary.LittleEndian.PutUint32(raw[4:], crc32.Checksum(raw[8:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func TestRecordOfAnotherReleaseIsUnsupported(t *testing.T) {
	r := records()[0]
	raw := journal.AppendRecord(nil, &r)
	version := bytes.Clone(raw)
	version[8] = 2
	section := append(bytes.Clone(raw), 99, 2, 0, 0, 0, 'x', 'y')
	for name, b := range map[string][]byte{"version": version, "section": section} {
		raw, _, err := journal.SplitRecord(reseal(b))
		if err != nil {
			t.Fatal(err)
		}
		var rec journal.Record
		var view journal.RecordView
		if err := rec.Decode(raw); !errors.Is(err, journal.ErrUnsupported) {
			t.Errorf("%s: decode: %v", name, err)
		}
		if err := view.Parse(raw); !errors.Is(err, journal.ErrUnsupported) {
			t.Errorf("%s: parse: %v", name, err)
		}
	}
}

func TestDecodeEntry(t *testing.T) {
	good := append(journal.AppendEntryHeader(nil, journal.EntryMeta, 7, 8), 'x')
	e, err := journal.DecodeEntry(good)
	if err != nil || e.Kind != journal.EntryMeta || e.Fence != 7 || e.Proposal != 8 || string(e.Body) != "x" {
		t.Fatalf("%+v %v", e, err)
	}
	for _, tt := range []struct {
		name string
		data []byte
		want error
	}{
		{"empty", nil, journal.ErrDamaged},
		{"short", good[:journal.EntryHeaderBytes-1], journal.ErrDamaged},
		{"version", append([]byte{2}, good[1:]...), journal.ErrUnsupported},
		{"kind", append([]byte{1, 9}, good[2:]...), journal.ErrUnsupported},
	} {
		if _, err := journal.DecodeEntry(tt.data); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// FuzzDecode: Decode and Parse agree on any body and never panic, and accepted
// bodies encode to the same bytes again.
func FuzzDecode(f *testing.F) {
	for _, r := range records() {
		f.Add(journal.AppendRecord(nil, &r)[8:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, rest, err := journal.SplitRecord(reseal(append(make([]byte, 8), body...)))
		if err != nil {
			if len(body) <= journal.MaxRecordBytes {
				t.Fatal(err)
			}
			return
		}
		if len(rest) != 0 {
			t.Fatalf("%d bytes are left", len(rest))
		}
		var r journal.Record
		var v journal.RecordView
		errDecode, errParse := r.Decode(raw), v.Parse(raw)
		if (errDecode == nil) != (errParse == nil) || errors.Is(errDecode, journal.ErrDamaged) != errors.Is(errParse, journal.ErrDamaged) {
			t.Fatalf("decode says %v, parse says %v", errDecode, errParse)
		}
		if errDecode != nil {
			if !errors.Is(errDecode, journal.ErrDamaged) && !errors.Is(errDecode, journal.ErrUnsupported) {
				t.Fatal(errDecode)
			}
			return
		}
		checkView(t, raw, &r)
		if again := journal.AppendRecord(nil, &r); !bytes.Equal(again, raw) {
			t.Fatalf("%x came back as %x", raw, again)
		}
	})
}

func FuzzSplitRecord(f *testing.F) {
	for _, r := range records() {
		f.Add(journal.AppendRecord(nil, &r))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		raw, rest, err := journal.SplitRecord(b)
		if err != nil {
			if !errors.Is(err, journal.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(append(bytes.Clone(raw), rest...), b) {
			t.Fatal("the parts are not the whole")
		}
	})
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(journal.AppendEntryHeader(nil, journal.EntryRecords, 1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := journal.DecodeEntry(b)
		if err != nil {
			return
		}
		again := append(journal.AppendEntryHeader(nil, e.Kind, e.Fence, e.Proposal), e.Body...)
		if !bytes.Equal(again, b) {
			t.Fatalf("%x came back as %x", b, again)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	r := records()[0]
	raw := journal.AppendRecord(nil, &r)
	var v journal.RecordView
	b.ReportAllocs()
	for b.Loop() {
		if err := v.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAfterView(b *testing.B) {
	r := records()[0]
	r.Events[0].Payload = make([]byte, 150)
	var v journal.RecordView
	if err := v.Parse(journal.AppendRecord(nil, &r)); err != nil {
		b.Fatal(err)
	}
	var c journal.Chain
	b.ReportAllocs()
	for b.Loop() {
		v.Prev = c.AfterView(v.Prev, &v)
	}
}
