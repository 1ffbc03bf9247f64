package sharding

// RowsChecksum is a 128-bit checksum over the rows of a shard's state machine.
// Replicas that applied the same entries have the same checksum.
type RowsChecksum [16]byte

// ReplicaChecksum is a shard's checksum at an index of its log.
type ReplicaChecksum struct {
	Index    uint64
	Checksum RowsChecksum
}
