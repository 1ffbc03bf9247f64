package meta_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

func keyed(b byte, rules map[string]sharding.KeyRule, types ...string) meta.Module {
	m := module(b, types...)
	m.ShardKeys = rules
	return m
}

// A type keeps the shard key of the first module bound to it.
func TestShardKeyNeverChanges(t *testing.T) {
	until := map[string]sharding.KeyRule{"a": {Until: "-"}}
	other := map[string]sharding.KeyRule{"a": {Until: "/"}}
	same := map[string]sharding.KeyRule{"a": {Group: "a", Until: "-"}, "b": {Group: "a"}}
	s := created(t,
		meta.PutModule(keyed(1, until, "a")), meta.PutModule(keyed(2, other, "a")), meta.PutModule(keyed(3, same, "a", "b")),
		meta.PutModule(module(4, "a")), meta.PutModule(module(5, "c")), meta.PutModule(keyed(6, map[string]sharding.KeyRule{"c": {Group: "a"}}, "c")),
		meta.Bind("a", digest(1), 1), meta.Bind("c", digest(5), 1))
	bind := func(typ string, b byte) error {
		_, result, _ := s.Apply(s.View().Index()+1, meta.Bind(typ, digest(b), 2))
		_, err := meta.DecodeResult(result)
		return err
	}
	for _, tt := range []struct {
		typ    string
		module byte
		want   error
	}{{"a", 2, meta.ErrShardKey}, {"a", 4, meta.ErrShardKey}, {"c", 6, meta.ErrShardKey}, {"a", 3, nil}, {"b", 3, nil}, {"a", 1, nil}} {
		if err := bind(tt.typ, tt.module); !errors.Is(err, tt.want) {
			t.Errorf("bind %s to %d: %v, want %v", tt.typ, tt.module, err, tt.want)
		}
	}
	for typ, want := range map[string]sharding.KeyRule{"a": {Until: "-"}, "b": {Group: "a"}, "c": {}} {
		if got, ok := s.View().ShardKey(typ); got != want || !ok {
			t.Errorf("type %s: %v %v", typ, got, ok)
		}
	}
	if _, ok := s.View().ShardKey("none"); ok {
		t.Error("a type that was never bound has a shard key")
	}
	loaded := meta.New()
	if err := loaded.Load(9, s.Dump()); err != nil || dump(loaded.View()) != dump(s.View()) {
		t.Errorf("read back: %v", err)
	}
}

func TestShardKeysOfAModuleAreChecked(t *testing.T) {
	for name, rules := range map[string]map[string]sharding.KeyRule{
		"of another type": {"b": {Until: "-"}}, "group": {"a": {Group: "B"}}, "until": {"a": {Until: strings.Repeat("-", 17)}},
	} {
		_, result, _ := created(t).Apply(2, meta.PutModule(keyed(1, rules, "a")))
		if _, err := meta.DecodeResult(result); !errors.Is(err, meta.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGoldenShardKey(t *testing.T) {
	s, out := created(t), strings.Builder{}
	for i, body := range [][]byte{
		meta.PutModule(keyed(0xab, map[string]sharding.KeyRule{"transfer": {Group: "account", Until: "-"}, "account": {Group: "account"}}, "account", "transfer")),
		meta.Bind("transfer", digest(0xab), 5), meta.Bind("account", digest(0xab), 6),
		meta.PutModule(module(0xcd, "transfer")), meta.Bind("transfer", digest(0xcd), 7),
	} {
		writes, result, _ := s.Apply(uint64(i+2), body)
		fmt.Fprintf(&out, "command %s\n", body)
		for _, w := range writes {
			fmt.Fprintf(&out, "  store %s %s\n", w.Key, w.Value)
		}
		fmt.Fprintf(&out, "  result %s\n", result)
	}
	const path = "testdata/golden_shard_key.txt"
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the formats changed; got\n%s", out.String())
	}
}
