// Package sim runs several nodes' raft groups, on the real write-ahead log
// over disks that lose what was not synced, in one goroutine and from one
// seed: the same seed makes the same run, byte for byte. Clients write and read
// entities while messages are lost, doubled and reordered, links cut, nodes
// paused, killed and cut from power in the middle of a write, and replicas that
// are behind get the state of others; in some worlds a coordinator moves
// replicas between nodes, of which some lose their disks, or get one back as it
// was some starts ago, which the others have to tell them. In many worlds the
// commands send to other entities, with and without an answer; some of what is
// sent is refused, faults, or goes nowhere; timers are set and fire, and
// histories are cut; in some of these worlds lookups of rows are answered by
// lies, and scans leave rows out. Then everything heals, and the invariants are
// checked.
//
// It runs the product's own Core and Driver and its own state machine, with
// the rules of the journal: an entry is refused unless its fence is its term
// and its records continue their entities' chains. Where entities send, each
// node also runs the product's state machine, on a store in memory that loses
// what was not durable, and the decisions of its pump; what becomes of each
// message and timer is held to a ledger of all committed entries.
package sim
