// Package deliver takes messages of entities to their destinations: a node's
// pump reads the outboxes of the shards that it leads, hands each message to
// the router as a request, in order for each pair of entities, and has those
// that arrived acknowledged. It tries again for ever while a destination cannot
// be had.
//
// It never decides a message and keeps nothing that is not in an outbox:
// whoever leads the shard next goes on from there, and what is delivered twice
// the destination recognizes. A Pump owns one goroutine, and one more while it
// asks whether an entity type exists; Close joins them.
package deliver
