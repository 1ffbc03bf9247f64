package client

import "strings"

// ShardKey determines which parts of an entity's type and id decide its shard.
// It never changes for a type; GetCluster lists the keys of all types. The zero
// ShardKey uses the type and the whole id.
type ShardKey struct {
	Group string // replaces the type, if it is not empty
	// Until ends the part of the id that is hashed: the part before the first
	// Until. If the id does not contain Until, or begins with it, or if Until is
	// empty, the whole id is hashed.
	Until string
}

// ShardOf returns the shard of an entity whose type has the key. It is the
// result of the function ShardOf for the group and the hashed part of the id.
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
// whose type has no shard key. The function never changes, and any client may
// compute it to find the node to call (ListShards returns the leader of each
// shard, GetCluster the number of shards and the addresses):
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
