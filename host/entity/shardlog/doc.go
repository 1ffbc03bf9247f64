// Package shardlog is what a lane has under way in the log of a shard that it
// leads: the entries that it fills, the proposals that have no outcome yet, and
// the outcomes of requests that wait for them.
//
// It never writes to a log and answers no request: a Lane does both. A Log
// belongs to the lane's goroutine and starts none.
package shardlog
