// Package coordinator decides where replicas and leaderships of a cluster go.
//
// One coordinator runs at a time, on the node that leads the metadata shard. It
// has to cope with nodes that crash, come back, slow down or report late, and
// with being replaced by another coordinator in the middle of any operation. It
// must never cost a shard its quorum or delete the last copy of committed data.
//
// The package splits the work into two pure functions:
//
//   - Coordinator.Step maps the metadata, the nodes' reports and the set of
//     reachable nodes to a Plan: metadata commands, leadership transfers and
//     operation progress. It decides where replicas should be.
//   - Converge maps a shard's placement (the desired state) and the membership
//     of its raft group (the actual state) to the group's next membership
//     change. It runs on the node that leads the shard.
//
// Everything the coordinator wants is written to the metadata before anybody
// acts on it. A new coordinator therefore needs no handover: it reads the
// metadata, receives reports and continues. What a Coordinator keeps in memory
// (timestamps, pending transfers, pinned leaders) only avoids repeated requests
// and repeated waiting. The exception is operator requests to move or
// rebalance, which end with the coordinator.
//
// A replica goes through these states. The coordinator makes the transitions in
// the upper row by changing the placement, and Converge follows in the raft
// group:
//
//	            caught up                evict, repair
//	learner ──────────────▶ voter ─────────────────────▶ leaving ──▶ (forgotten)
//	   │                      │                            ▲
//	   │                      └── demote ──▶ learner ──────┤
//	   └────────────────── not needed, damaged ────────────┘
//
// Invariants: a voter loses its vote only if a quorum of the remaining voters
// is known to be caught up; a replica is only forgotten, and then deleted by
// its node, once every live voter has applied a membership without it (see
// forget.go); at most one change per shard is in flight.
//
// Two alternatives were rejected. Letting the leader of each shard choose its
// own replicas needs no reports, but it cannot balance load or respect zones
// across shards. Executing plans directly, with the metadata as a log of the
// executed steps, loses half-done changes whenever the coordinator moves.
//
// The package does no I/O, reads no clock, uses no randomness and starts no
// goroutine, so that the simulator can run the product's code with any
// interleaving.
package coordinator
