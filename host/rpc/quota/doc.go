// Package quota holds callers to the quotas of their roles, on this node:
// commands and queries, fuel and bytes in a second, streams, connections and
// uploads at a time, and the processor time of compilers in a minute. What is
// over a quota is refused before anything of it is carried out.
//
// It never decides what a quota is: the table of roles says so, which is asked
// for each call. It never waits and has no goroutine. Completions charge what a
// call has cost from lanes, and do not block.
package quota
