package sharding

import "strconv"

// Buckets is into how many buckets the entities of a type are divided.
const Buckets = 10_000

// Percent is a share in parts of Buckets, as people read it: 50 is "0.5%".
func Percent(share uint32) string {
	return strconv.FormatFloat(float64(share)*100/Buckets, 'f', -1, 64) + "%"
}

// Bucket is the bucket of an entity, from 0 to Buckets-1, by which a part of
// the entities of its type is chosen. It has nothing to do with the shard,
// and is the same in every release.
func (e EntityID) Bucket() uint32 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for _, s := range [...]string{e.Type, e.ID} {
		for i := 0; i < len(s); i++ {
			h = (h ^ uint64(s[i])) * prime
		}
		h *= prime
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return uint32(h % Buckets)
}
