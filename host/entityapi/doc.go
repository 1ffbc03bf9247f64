// Package entityapi implements the EntityService of a node: commands and
// queries, descriptions and listings of entities, their records, states, timers,
// messages and dead letters, and the events of a type.
//
// Handler maps the API's messages to the interfaces in Options. They use these interfaces on this node if it leads the entity's
// shard, and forward the call to the leader otherwise. Parts implements the
// interfaces on a running node; tests use fakes. Stored data is read from the
// journal; the state in memory is obtained from the entity's executor.
//
// The package decides no commands, and no goroutine outlives the call that
// starts it.
package entityapi
