// Package lane is the goroutine that runs the entities of some shards: it feeds
// their core with what comes in, gives it the time, visits guests and has
// histories read for it. It goes on without a visit that runs long.
//
// It decides nothing about an entity. A Lane owns the goroutine of its loop,
// its overseer and its loaders; Close joins them.
package lane
