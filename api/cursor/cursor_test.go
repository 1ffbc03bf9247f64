package cursor

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
)

func sample() Cursor {
	return Cursor{Mark: 0xdeadbeef, Shards: 256, Places: []Place{
		{1, Position{Index: 1}}, {7, Position{Index: 1 << 40, Ordinal: 3, Events: 2}}, {256, Position{Index: math.MaxInt64, Ordinal: math.MaxUint32, Events: math.MaxUint16}},
	}}
}

// withHistory is the sample with histories, one of which is unknown.
func withHistory() Cursor {
	c := sample()
	c.Places[0].History, c.Places[2].History = 1, 0xfeedf00d
	return c
}

// TestGoldenBytes checks that a stored cursor stays readable, including a
// cursor of an earlier release, which has no history.
func TestGoldenBytes(t *testing.T) {
	for file, c := range map[string]Cursor{"cursor.txt": sample(), "cursor2.txt": withHistory()} {
		t.Run(file, func(t *testing.T) { testGolden(t, "testdata/"+file, c) })
	}
}

func testGolden(t *testing.T, file string, c Cursor) {
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := base64.RawURLEncoding.DecodeString(c.Text())
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Text() + "\n" + hex.EncodeToString(b) + "\n"; got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	back, err := Parse(strings.SplitN(string(want), "\n", 2)[0])
	if err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("%+v, %v", back, err)
	}
}

// TestEveryChangeIsSeen checks that no changed, truncated or extended cursor is
// accepted.
func TestEveryChangeIsSeen(t *testing.T) {
	for _, c := range []Cursor{sample(), withHistory()} {
		everyChange(t, c.Text())
	}
	for _, bad := range []Cursor{
		{Shards: MaxShards + 1},
		{Shards: 2, Places: []Place{{3, Position{Index: 1}}}},
		{Shards: 2, Places: []Place{{1, Position{}}}},
		{Shards: 2, Places: []Place{{1, Position{Index: 1}}, {1, Position{Index: 2}}}},
		{Shards: 2, Places: []Place{{0, Position{Index: 1}}}},
		{Shards: 2, Places: []Place{{1, Position{Index: 1, Events: math.MaxUint16 + 1}}}},
		{Shards: 2, Places: []Place{{1, Position{Index: math.MaxInt64 + 1}}}},
	} {
		if _, err := Parse(bad.Text()); !errors.Is(err, ErrMalformed) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := Parse(strings.Repeat("A", MaxText+1)); !errors.Is(err, ErrMalformed) {
		t.Error("one over the limit passed")
	}
}

func everyChange(t *testing.T, text string) {
	for i := range text {
		for _, with := range []byte("A_9") {
			if text[i] == with {
				continue
			}
			changed := text[:i] + string(with) + text[i+1:]
			if _, err := Parse(changed); !errors.Is(err, ErrMalformed) {
				t.Fatalf("byte %d as %q: %v", i, with, err)
			}
		}
		if _, err := Parse(text[:i]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut to %d: %v", i, err)
		}
	}
	if _, err := Parse(text + text); !errors.Is(err, ErrMalformed) {
		t.Error("two at once passed")
	}
}

func TestJoin(t *testing.T) {
	var c Cursor
	for _, p := range []Place{{5, Position{Index: 1}}, {2, Position{Index: 4}}, {5, Position{Index: 2, Events: 1, History: 8}}, {9, Position{Index: 3}}, {1, Position{Index: 9}}} {
		c.Join(&Cursor{Mark: 7, Shards: 9, Places: []Place{p}})
	}
	want := Cursor{7, 9, []Place{{1, Position{Index: 9}}, {2, Position{Index: 4}}, {5, Position{Index: 2, Events: 1, History: 8}}, {9, Position{Index: 3}}}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v", c)
	}
}

func FuzzParse(f *testing.F) {
	c := sample()
	f.Add(c.Text())
	named := withHistory()
	f.Add(named.Text())
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(c.Text())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v, %+v, %v", c, again, err)
		}
	})
}

// A cursor of a few shards is as short as the documentation promises, even if
// their logs have billions of entries.
func TestCursorsOfFewShardsAreShort(t *testing.T) {
	c := Cursor{Mark: 1 << 31, Shards: MaxShards}
	for shard := uint32(1); shard <= 7; shard++ {
		c.Places = append(c.Places, Place{Shard: shard, Position: Position{Index: 1<<35 - 1, Ordinal: 100, Events: 100, History: 1 << 31}})
	}
	if text := c.Text(); len(text) >= 130 {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
