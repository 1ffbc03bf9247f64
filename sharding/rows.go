package sharding

// RowsDigest is 128 bits of what a shard's state machine has: replicas that
// have applied the same entries have the same.
type RowsDigest [16]byte

// Proof is the digest of a shard as of an index of its log.
type Proof struct {
	Index  uint64
	Digest RowsDigest
}
