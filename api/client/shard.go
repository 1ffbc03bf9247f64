package client

import "strings"

// ShardKey says what of an entity decides its shard. It is the type's for ever;
// GetCluster lists those of all types. The zero ShardKey is the type and the
// whole id.
type ShardKey struct {
	Group string // in the place of the type; empty is the type
	// Until ends what counts of the id: the part before the first Until. An id
	// without it, or that begins with it, counts whole. Empty is the whole id.
	Until string
}

// ShardOf returns the shard of an entity of a type with the key: that of the
// function ShardOf for what the key leaves of type and id.
func (k ShardKey) ShardOf(entityType, entityID string, n uint32) uint32 {
	if k.Group != "" {
		entityType = k.Group
	}
	if k.Until != "" {
		if i := strings.Index(entityID, k.Until); i > 0 {
			entityID = entityID[:i]
		}
	}
	return ShardOf(entityType, entityID, n)
}

// ShardOf returns the shard of an entity in a cluster of n data shards, 1 to n,
// where its type has no shard key of its own.
// It is the same for ever, and any client may do the same to find the node to
// talk to (ListShards names the leader of each shard, GetCluster the number of
// shards and the addresses):
//
//	h = FNV-1a, 64 bit, over the bytes of the type, a zero byte and the id
//	h ^= h >> 33; h *= 0xff51afd7ed558ccd
//	h ^= h >> 33; h *= 0xc4ceb9fe1a85ec53
//	h ^= h >> 33
//	shard = 1 + h mod n, all unsigned
//
// n must be at least 1.
func ShardOf(entityType, entityID string, n uint32) uint32 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := 0; i < len(entityType); i++ {
		h = (h ^ uint64(entityType[i])) * prime
	}
	h *= prime // the zero byte
	for i := 0; i < len(entityID); i++ {
		h = (h ^ uint64(entityID[i])) * prime
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return 1 + uint32(h%uint64(n))
}
