package sharding

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestKeyRuleUsesPartOfTheID(t *testing.T) {
	until := KeyRule{Until: "-"}
	for _, tt := range []struct {
		rule     KeyRule
		entity   EntityID
		group    string
		key      string
		shardOf7 ShardID
	}{
		{KeyRule{}, EntityID{"account", "c42-1"}, "account", "c42-1", 2},
		{until, EntityID{"account", "c42-1"}, "account", "c42", 3},
		{until, EntityID{"account", "c42-1-2"}, "account", "c42", 3},
		{until, EntityID{"account", "c42"}, "account", "c42", 3},
		{until, EntityID{"account", "-1"}, "account", "-1", 2},
		{KeyRule{Until: "::"}, EntityID{"account", "c:42::9"}, "account", "c:42", 7},
		{KeyRule{Group: "account", Until: "/"}, EntityID{"transfer", "c42/t1"}, "account", "c42", 3},
		{KeyRule{Group: "customer"}, EntityID{"account", "c42"}, "customer", "c42", 5},
		{KeyRule{Group: "customer", Until: "-"}, EntityID{"transfer", "c42-t1"}, "customer", "c42", 5},
	} {
		if got := tt.rule.key(tt.entity); got.Type != tt.group || got.ID != tt.key {
			t.Errorf("%v of %v: %v", tt.rule, tt.entity, got)
		}
		if got := tt.rule.ShardOf(tt.entity, 7); got != tt.shardOf7 {
			t.Errorf("%v of %v: shard %d, the format says %d", tt.rule, tt.entity, got, tt.shardOf7)
		}
	}
}

func TestKeyRuleSpreadsKeys(t *testing.T) {
	rule, seen := KeyRule{Group: "customer", Until: "-"}, map[ShardID]int{}
	for i := range 3000 {
		s := rule.ShardOf(EntityID{"account", fmt.Sprintf("c%d-%d", i, i%7)}, 16)
		if s < 1 || s > 16 {
			t.Fatalf("shard %d of 16", s)
		}
		seen[s]++
	}
	for s, n := range seen {
		if n < 100 || n > 300 {
			t.Errorf("shard %d has %d of 3,000 keys", s, n)
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d of 16 shards have keys", len(seen))
	}
}

func TestInvalidKeyRulesAreRejected(t *testing.T) {
	for _, r := range []KeyRule{
		{Group: "Customer"}, {Group: strings.Repeat("a", MaxEntityTypeBytes+1)},
		{Until: strings.Repeat("-", MaxKeyUntilBytes+1)}, {Until: "\x00"}, {Until: "a\x7f"}, {Until: "\xff"},
	} {
		if err := r.Validate(); !errors.Is(err, ErrInvalidName) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []KeyRule{
		{}, {Group: "customer"}, {Until: strings.Repeat("-", MaxKeyUntilBytes)}, {Group: "a", Until: "·"},
	} {
		if err := r.Validate(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if got := (KeyRule{Group: "account", Until: "-"}).Normalize("account"); got != (KeyRule{Until: "-"}) {
		t.Errorf("the type's own group is %v", got)
	}
}

func BenchmarkKeyRuleShardOf(b *testing.B) {
	rule, e := KeyRule{Group: "customer", Until: "-"}, EntityID{"account", "customer000042-17"}
	b.ReportAllocs()
	for b.Loop() {
		rule.ShardOf(e, 256)
	}
}
