// Package entity runs entities: it decides commands and answers queries by calling
// guests, and turns each decision into one record of the journal.
//
// # Problem
//
// An entity's commands have an order, and each sees the state that the previous one
// left. A commit needs milliseconds. If a command waited for the commit of the
// previous one, an entity would decide a few hundred commands a second, and a guest
// that runs long would stop every entity that shares its goroutine.
//
// # Approach
//
// A ShardRouter owns the executors of a node. It passes a request to the executor of
// its shard, and the shard's apply results back to it. An executor is one goroutine
// that runs the entities of some shards. It has three parts:
//
//   - The core is a state machine without a goroutine, clock, disk, socket or lock.
//     It accepts requests and events and is driven through coreTurns, so a model can
//     drive it step by step. It leads entities through their phases (core.go); the decider
//     turns requests into records (decide.go); the residents know which entities are
//     in memory (residents.go); each shard proposes its entries and holds the
//     outcomes that wait for them (shard.go, propose.go, shardlog.go).
//   - The executor is the thin loop around the core: a queue, a timer, guest calls
//     and their preemption (executor.go, preemption.go).
//   - Loaders are goroutines that read histories for the core (loaders.go).
//
// A request passes these stages:
//
//	 Submit        admit           dispatch              decide
//	queued ----> admitted ----> waits in entity ----> decided, in a batch
//	   |             |             |   ^                   | propose: 256 KiB, 256
//	   | full        | not the     |   | cold: load        | turns, or nothing ready
//	   v             | leader,     |   v                   v
//	ErrBusy          | too many  loading               proposed --> committed --> answered
//	                 v                                     |
//	              rejected                                 | lost with the leadership
//	                                                       v
//	                                                ErrOutcomeUnknown, or decided again
//
// Phases of an entity are drawn in core.go, leadership of a shard in shard.go.
//
// # Invariant
//
// Decisions run ahead of durability; outcomes never do. Every reply, query result and
// rejection waits behind a commit barrier (barriers.go) until all events it saw are
// committed, and one without a record also until ReadIndex has confirmed that this
// node still leads. An entity has one owner at a time: a shard's entities run only
// while this node leads it, under the term that fences its proposals.
//
// # Rejected
//
// A goroutine for each entity: a million resident entities cost a stack each, and
// batching entries across entities needs a lock. A lock for each shard instead of one
// goroutine for several: contended on hot shards, and no place to bound the work of a
// turn. Waiting for a guest call of any length: a slow guest delays its neighbours,
// so a call that runs longer than one to two milliseconds keeps its goroutine and
// instance, and another goroutine continues with the rest.
//
// Executors own their goroutines, and a StateChecker owns one; Close joins them.
package entity
