// Package deliver delivers messages between entities. A node's outbox
// dispatcher (Dispatcher) reads the outboxes of the shards that the node leads
// and hands each message to the router as a request, in order within each
// channel (source entity, destination entity). It proposes acknowledgements of
// the messages that arrived, and retries without limit while a destination is
// unavailable.
//
// It decides nothing about a message's effect and keeps no state that is not in
// an outbox. The next leader of a shard therefore starts from the outbox, and
// the destination deduplicates messages that are delivered twice. A Dispatcher
// owns one goroutine, and a second one while it asks whether an entity type
// exists; Close joins both.
package deliver
