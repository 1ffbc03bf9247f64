// Package sim is a deterministic simulation of several nodes. It runs their
// raft groups, on the real write-ahead log over disks that lose unsynced data,
// in one goroutine. The same seed makes the same run, byte for byte.
//
// Clients write and read entities during faults: frames are lost, duplicated
// and reordered; links are cut; nodes are paused, killed, and lose power in the
// middle of a write; and replicas that fell behind install snapshots of other
// replicas. In some worlds a coordinator moves replicas between nodes, some
// nodes lose their disks, and some come back with an old copy of their disk,
// which the other nodes have to detect. In many worlds commands send messages
// to other entities, with and without a reply, some of which are rejected,
// fault, or have no destination; timers are set and fire; and histories are
// truncated. In some of these worlds the store returns wrong rows for lookups
// and omits rows from scans. At the end all faults are healed and the
// invariants are checked.
//
// The simulation runs the product's Core and Driver with a state machine of its
// own, the model, which applies the rules of the journal: it rejects an entry
// unless its fence is its term and its records continue the chains of their
// entities. If entities send messages, each node also runs the product's state
// machine, on an in-memory store that loses data that was not durable, and the
// product's outbox dispatcher. The fate of each message and timer is then
// compared with a ledger of all committed entries.
package sim
