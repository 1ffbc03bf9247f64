// Package eventlog is the state machine behind every shard's log. It decides,
// identically on every replica, whether a committed entry takes effect. Applied
// entries are kept in a memtable until they are written to the store, and reads
// see both as one history. Applying never syncs and never reads a clock, and
// neither a cache nor map order can influence a result.
//
// A node has one current generation of each shard. A generation starts empty or
// from a snapshot exported by another replica, and ends when the replica is
// removed or the next generation starts. The log records which generation is
// current.
//
// Machine is the pure core without goroutines: it applies entries and produces
// batches, and its Reader serves concurrent reads. The components for messages,
// for timers, for an entity's history and for knowledge about stored rows are
// in subpackages, and so are the consistent views that readers see. Applier
// owns two goroutines: one applies entries and builds batches, the other writes
// them. Close waits for both.
package eventlog
