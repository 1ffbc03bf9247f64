// Package eventlog is the state machine behind every shard's log: it decides,
// the same way on every replica, whether a committed entry takes effect, holds
// what took effect until it is in the store, and reads both as one history.
// It never syncs, never looks at a clock while applying, and never lets a
// cache or the order of a map change a verdict.
//
// What it holds of a shard is one life of it on this node: it begins with
// nothing, or with a snapshot that another replica exported, and ends when the
// replica is removed or another life begins. Which life is the present one, the
// log says.
//
// Machine is the pure core and has no goroutine. Applier owns two: one applies
// and makes batches, one writes them; Close joins both.
package eventlog
