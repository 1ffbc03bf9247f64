// Package entityapi answers the EntityService of a node: commands and queries,
// descriptions and listings of entities, their records, states, timers, messages
// and dead letters, and the events of a type.
//
// Handler and its neighbors map the API's messages to the interfaces that Options
// names, at this node if it leads the entity's shard and at the leader otherwise.
// Parts answers these interfaces on a running node; tests put doubles in their
// place. What is read here is read from the journal; what is in memory, the
// entity's executor is asked for.
//
// Nothing here decides commands, and no goroutine outlives the call that starts it.
package entityapi
