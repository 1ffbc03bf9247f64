// Package membership discovers the other nodes of a cluster by gossip and
// reports which of them are reachable. Its results are hints: members and
// placements are decided in the metadata shard, and nothing moves because of
// this package alone. It is the only package that imports memberlist.
//
// The package does not listen or dial by itself; the node gives it the gossip
// half of its port. FORMAT.md in this directory describes the bytes that it
// adds to memberlist's.
//
// A Membership owns the goroutines that join, accept, send and receive. Close
// waits for them and closes every connection. memberlist's own goroutines end
// with that too, except that one may wait up to eight seconds for the answer to
// a probe.
//
// # Timing
//
// The settings are memberlist's for a local network. Each node probes one other
// node per second. A node that answers neither directly, nor through three
// other nodes, nor over a stream becomes suspected. If the node does not refute
// the suspicion within 4 s (slightly more in clusters above ten nodes), it
// counts as unreachable, which is 5 to 6 s after a crash. With four or more
// nodes, the timeout is that short only if two other nodes suspect the same
// node; otherwise it is up to 24 s.
//
// A node that misses answers assumes that it is slow itself and waits up to
// eight times longer before it accuses others (Lifeguard,
// https://arxiv.org/abs/1707.00788). Therefore a starved node neither declares
// all others dead, nor is declared dead by a single other starved node. This
// only works if all nodes use the same settings, so they are not configurable.
package membership
