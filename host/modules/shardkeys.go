package modules

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// viewer has the metadata as applied on this node.
type viewer interface{ View() *meta.View }

// ShardKeys maps entities to shards by the rules in the metadata. Rules never
// change, so a node keeps the rules that it knows even while its replica of the
// metadata is being replaced. It is safe for concurrent use and does not block.
type ShardKeys struct {
	shards   uint32
	metadata viewer

	mu    sync.Mutex // serializes changes of rules
	rules atomic.Pointer[map[string]sharding.KeyRule]
}

func newShardKeys(shards uint32, m viewer) *ShardKeys {
	k := &ShardKeys{shards: shards, metadata: m}
	k.rules.Store(&map[string]sharding.KeyRule{})
	return k
}

// Locate implements sharding.Locate.
func (k *ShardKeys) Locate(e sharding.EntityID) (sharding.ShardID, bool) {
	rule, known := (*k.rules.Load())[e.Type]
	if !known {
		view := k.metadata.View()
		if rule, known = view.ShardKey(e.Type); !known {
			return sharding.MetaShard, false
		}
		k.learn(view)
	}
	return rule.ShardOf(e, k.shards), true
}

// Prefix returns the shard of all entities of a type whose ids begin with
// idPrefix. ok is false unless the prefix contains the whole shard key, so that
// there is only one shard.
func (k *ShardKeys) Prefix(entityType, idPrefix string) (sharding.ShardID, bool) {
	rule, known := (*k.rules.Load())[entityType]
	if !known || rule.Until == "" || strings.Index(idPrefix, rule.Until) < 1 {
		return sharding.MetaShard, false
	}
	return rule.ShardOf(sharding.EntityID{Type: entityType, ID: idPrefix}, k.shards), true
}

// learn adds the rules of the served types.
func (k *ShardKeys) learn(view *meta.View) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := *k.rules.Load()
	var next map[string]sharding.KeyRule
	for _, b := range view.Activations() {
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
