package store

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
)

// TestHeadTimers: inline timers are a small ordered map under any sequence of
// sets and removals.
func TestHeadTimers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "ab", "b", "remind", strings.Repeat("n", 60), strings.Repeat("o", 61), strings.Repeat("p", 119), strings.Repeat("q", 120)}
	var set HeadTimers
	want := make(map[string]int64)
	full, long := 0, 0
	for range 20_000 {
		name, due := names[rng.IntN(len(names))], rng.Int64()-1<<62
		before := set
		if rng.IntN(3) == 0 {
			set = set.Without(name)
			delete(want, name)
		} else {
			after, room := set.With(name, due)
			others := maps.Clone(want)
			others[name] = due
			size := 0
			for n := range others {
				size += 1 + len(n) + 8
			}
			if fits := len(others) <= 4 && size <= 128; room != fits {
				t.Fatalf("%d timers of %d bytes: room %v", len(others), size, room)
			}
			if room {
				want = others
			} else if after != set {
				t.Fatal("what has no room changes what is there")
			} else if len(others) > 4 {
				full++
			} else {
				long++
			}
			set = after
		}
		var got []string
		for name, due := range set.All {
			if want[name] != due {
				t.Fatalf("%s is due at %d, want %d", name, due, want[name])
			}
			got = append(got, name)
		}
		if !slices.Equal(got, slices.Sorted(maps.Keys(want))) || set.Len() != len(want) || len(set) > 0 && !set.whole() {
			t.Fatalf("%q after %q, want %v", set, before, want)
		}
		for _, name := range names {
			due, ok := set.Find(name)
			if at, has := want[name]; ok != has || due != at {
				t.Fatalf("%s: %d %v, want %d %v", name, due, ok, at, has)
			}
		}
	}
	if full == 0 || long == 0 {
		t.Errorf("refused for their number %d times, for their length %d times", full, long)
	}
}

// TestHeadHoldsTimers pins the bytes of an entity row with inline timers, and
// rejects invalid rows.
func TestHeadHoldsTimers(t *testing.T) {
	set, _ := HeadTimers("").With("ring", 5)
	set, _ = set.With("a", -1)
	h := Head{Sequence: 1, Timers: 3, Set: set, Snapshots: Snapshots{1}, Stands: journal.Position{Index: 2}}
	body := AppendHead(nil, &h)
	const tail = "01" + "0100000000000000" + "03000000" + "0161ffffffffffffffff" + "0472696e670500000000000000" + "17" + "0200000000000000" + "00000000"
	if body[0] != 0x66 || fmt.Sprintf("%x", body[headBytes:]) != tail {
		t.Errorf("%x, want 66 and %s", body, tail)
	}
	if got, err := DecodeHead(body); err != nil || got != h {
		t.Errorf("%+v %v", got, err)
	}
	for what, bad := range map[string][]byte{
		"fewer are set than it holds": bytes.Replace(body, []byte{3, 0, 0, 0, 1, 'a'}, []byte{1, 0, 0, 0, 1, 'a'}, 1),
		"it says that none are set":   append([]byte{body[0] &^ headTimers}, body[1:]...),
		"not in order":                bytes.Replace(body, []byte{1, 'a'}, []byte{1, 's'}, 1),
		"a name with a zero":          bytes.Replace(body, []byte{1, 'a'}, []byte{1, 0}, 1),
		"no name":                     bytes.Replace(body, []byte{1, 'a', 255}, []byte{0, 255}, 1),
		"a long name":                 bytes.Replace(body, []byte{4, 'r'}, []byte{5, 'r'}, 1),
		"another length":              bytes.Replace(body, []byte{0x17, 2}, []byte{0x16, 2}, 1),
		"longer than it may be":       bytes.Replace(body, []byte{0x17, 2}, []byte{0xff, 2}, 1),
	} {
		if bytes.Equal(bad, body) {
			t.Fatal(what)
		}
		if got, err := DecodeHead(bad); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
