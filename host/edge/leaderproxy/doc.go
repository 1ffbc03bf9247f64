// Package leaderproxy forwards an API call to the node that leads its shard,
// retries it at the next leader, and serves the calls that other nodes forward.
// A call is forwarded at most once.
//
// It does not decide who leads. Each call to a different node has a goroutine
// that cancels the call when that node is suspected to have failed; the
// goroutine ends with the call.
package leaderproxy
