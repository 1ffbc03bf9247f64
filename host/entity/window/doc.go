// Package window remembers the commands that an entity has executed, so that a
// retry of one takes effect only once. It has an idempotency window, bounded in
// number, bytes and age; a filter of command ids, which a snapshot carries
// instead of the window; and the rule for how old a retry may be.
//
// The content of a window is a function of the entity's records and of Limits.
// The package never reads a clock and starts no goroutine. A Window is not safe
// for concurrent use.
package window
