// Package quota enforces the quotas of callers' roles on this node: commands
// and queries, fuel, and bytes per second; concurrent streams, connections and
// uploads; and the processor time of compilers per minute. A request over a
// quota is rejected before any of it is carried out.
//
// The package does not define the limits: it looks them up in the table of
// roles for each call. It never waits and starts no goroutine. Executors charge
// the cost of a call when it completes, and do not block.
package quota
