package sharding

import "strconv"

// Buckets is the number of buckets into which the entities of each type are
// divided.
const Buckets = 10_000

// Percent formats a share, given in units of 1/Buckets, as a percentage: 50 is
// "0.5%".
func Percent(share uint32) string {
	return strconv.FormatFloat(float64(share)*100/Buckets, 'f', -1, 64) + "%"
}

// Bucket returns the entity's bucket, from 0 to Buckets-1. Rollouts use it to
// select a fraction of a type's entities. The bucket is independent of the
// shard and stays the same across releases.
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
