package sharding

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The mapping from an entity to its shard is part of the format, so these
// values never change.
func TestShardOfNeverChanges(t *testing.T) {
	for _, c := range []struct {
		entity EntityID
		shards uint32
		want   ShardID
	}{
		{EntityID{"counter", "c1"}, 256, 225},
		{EntityID{"counter", "c2"}, 256, 167},
		{EntityID{"account", "alice"}, 256, 28},
		{EntityID{"account", "alice"}, 3, 3},
		{EntityID{"a", "bc"}, 1024, 456},
		{EntityID{"ab", "c"}, 1024, 414},
		{EntityID{"chain", "日本"}, 4096, 1890},
		{EntityID{"x", "y"}, 1, 1},
	} {
		if got := ShardOf(c.entity, c.shards); got != c.want {
			t.Errorf("%v of %d shards: %d, want %d", c.entity, c.shards, got, c.want)
		}
	}
}

// ShardOf is FNV-1a over the type, a zero byte and the id, with a final mix.
func TestShardOfMatchesFNV(t *testing.T) {
	for i := range 1000 {
		e := EntityID{fmt.Sprintf("t%d", i%7), fmt.Sprintf("id-%d", i)}
		f := fnv.New64a()
		f.Write([]byte(e.Type + "\x00" + e.ID))
		h := f.Sum64()
		h ^= h >> 33
		h *= 0xff51afd7ed558ccd
		h ^= h >> 33
		h *= 0xc4ceb9fe1a85ec53
		h ^= h >> 33
		if want := ShardID(1 + h%97); ShardOf(e, 97) != want {
			t.Fatalf("%v: %d, want %d", e, ShardOf(e, 97), want)
		}
	}
}

func TestShardOfSpreadsEntitiesEvenly(t *testing.T) {
	const shards, entities = 256, 100_000
	var count [shards + 1]int
	for i := range entities {
		count[ShardOf(EntityID{"user", fmt.Sprint(i)}, shards)]++
	}
	if count[MetaShard] != 0 {
		t.Error("the metadata shard got entities")
	}
	for s := 1; s <= shards; s++ {
		if mean := entities / shards; count[s] < mean*3/4 || count[s] > mean*5/4 {
			t.Errorf("shard %d got %d of %d entities, the mean is %d", s, count[s], entities, mean)
		}
	}
}

func TestInvalidNamesAreRejected(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		entity EntityID
		ok     bool
	}{
		{EntityID{"counter", "a"}, true},
		{EntityID{"a-9", "Ünïcode ☃ with spaces"}, true},
		{EntityID{long(63), long(255)}, true},
		{EntityID{long(64), long(256)}, true},
		{EntityID{long(65), "a"}, false},
		{EntityID{"a", long(257)}, false},
		{EntityID{"", "a"}, false},
		{EntityID{"a", ""}, false},
		{EntityID{"Counter", "a"}, false},
		{EntityID{"a_b", "a"}, false},
		{EntityID{"a", "a\x00b"}, false},
		{EntityID{"a", "tab\t"}, false},
		{EntityID{"a", "del\x7f"}, false},
		{EntityID{"a", "c1\u0085"}, false},
		{EntityID{"a", "\xff"}, false},
		{EntityID{"a", "rtl\u202e"}, false},
		{EntityID{"a", "bom\ufeff"}, false},
		{EntityID{"a", "👩\u200d👧 \u00a0"}, true},
	} {
		err := c.entity.Validate()
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrInvalidName) {
			t.Errorf("%q: %v", c.entity, err)
		}
	}
}

// FuzzID checks that an accepted id can be part of a key and maps to one shard.
func FuzzID(f *testing.F) {
	for _, s := range []string{"a", "\x00", "ä", "\xc3", " ", "a\u0300", strings.Repeat("é", 128)} {
		f.Add(s, uint32(7))
	}
	f.Fuzz(func(t *testing.T, id string, shards uint32) {
		if ValidateID(id) != nil {
			return
		}
		if id == "" || len(id) > MaxEntityIDBytes || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
			t.Errorf("%q is accepted", id)
		}
		if shards == 0 {
			return
		}
		e := EntityID{"t", id}
		if s := ShardOf(e, shards); s < 1 || uint32(s-1) >= shards || s != ShardOf(e, shards) {
			t.Errorf("%q is in shard %d of %d", id, s, shards)
		}
	})
}
