// Package membership finds the other nodes of a cluster by gossip and says
// which of them can be seen. It is a hint: who is a member and what lies where
// is decided in the metadata shard, and nothing moves on account of this
// package. It is the one that uses memberlist.
//
// It never listens or dials by itself; the node gives it the gossip half of its
// port. The bytes that it adds to memberlist's are described in FORMAT.md
// beside it.
//
// A Membership owns the goroutines that join, accept, send and receive; Close
// joins them, and closes every connection. memberlist's own end with that, but
// for one that may wait for the answer to a probe, up to eight seconds.
//
// # Timing
//
// The settings are memberlist's for a local network: each node probes one other
// per second; a node that answers neither directly nor through three others nor
// over a stream is suspected, and is unreachable when it has not refuted that
// in 4 s, a little more in clusters above ten nodes: 5 to 6 s after a crash.
// With four nodes and more, the time is that short only where two others
// suspect the same node; one that nobody else suspects has up to 24 s. And a
// node that misses answers takes itself for slow, and waits up to eight times
// longer before it accuses others (Lifeguard,
// https://arxiv.org/abs/1707.00788). So a starved node neither is declared dead
// by one other starved node nor declares everyone dead. It only works where all
// do it, so these are no options.
package membership
