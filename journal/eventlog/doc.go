// Package eventlog is the state machine behind every shard's log: it decides,
// the same way on every replica, whether a committed entry takes effect, holds
// what took effect until it is in the store, and reads both as one history.
// It never syncs, never looks at a clock while applying, and never lets a
// cache or the order of a map change a verdict.
//
// What it holds of a shard is one generation of it on this node: it begins with
// nothing, or with a snapshot that another replica exported, and ends when the
// replica is removed or another generation begins. Which generation is the
// present one, the log says.
//
// Machine is the pure core and has no goroutine: it applies and flushes, and
// its Reader answers whoever asks. What a shard has of messages and of timers,
// and what is known of its rows, are components in packages below, as are the
// moments that readers look at. Applier owns two goroutines: one applies and
// makes batches, one writes them; Close joins both.
package eventlog
