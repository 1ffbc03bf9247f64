package modules

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// ShardKeys maps entities to shards by the rules that the metadata holds. A
// rule that it has learned stays: rules never change, and the metadata may be
// behind for a while when its replica is renewed. It is safe for concurrent use
// and does not block.
type ShardKeys struct {
	shards uint32
	view   func() *meta.View

	mu    sync.Mutex // of changes to rules
	rules atomic.Pointer[map[string]sharding.KeyRule]
}

func newShardKeys(shards uint32, view func() *meta.View) *ShardKeys {
	k := &ShardKeys{shards: shards, view: view}
	k.rules.Store(&map[string]sharding.KeyRule{})
	return k
}

// Locate implements sharding.Locate.
func (k *ShardKeys) Locate(e sharding.EntityID) (sharding.ShardID, bool) {
	rule, known := (*k.rules.Load())[e.Type]
	if !known {
		view := k.view()
		if rule, known = view.ShardKey(e.Type); !known {
			return sharding.MetaShard, false
		}
		k.learn(view)
	}
	return rule.ShardOf(e, k.shards), true
}

// Prefix returns the shard of all entities of a type whose ids begin so, where
// that is one: the prefix holds the whole key.
func (k *ShardKeys) Prefix(entityType, idPrefix string) (sharding.ShardID, bool) {
	rule, known := (*k.rules.Load())[entityType]
	if !known || rule.Until == "" || strings.Index(idPrefix, rule.Until) < 1 {
		return sharding.MetaShard, false
	}
	return rule.ShardOf(sharding.EntityID{Type: entityType, ID: idPrefix}, k.shards), true
}

// learn takes over the rules of the types that are bound.
func (k *ShardKeys) learn(view *meta.View) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := *k.rules.Load()
	var next map[string]sharding.KeyRule
	for _, b := range view.Bindings() {
		if _, known := old[b.EntityType]; known {
			continue
		}
		if next == nil {
			next = maps.Clone(old)
		}
		next[b.EntityType] = b.ShardKey
	}
	if next != nil {
		k.rules.Store(&next)
	}
}
