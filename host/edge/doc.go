// Package edge serves the public API over HTTP: Connect, gRPC and gRPC-Web share
// one listener with the health checks, gRPC reflection and metrics. A second
// listener carries the traffic between nodes. The package validates and bounds
// requests, turns them into entity requests, and turns the outcomes into
// responses. Package status maps errors to codes and details.
//
// Package edge mounts the services that it is given (API) and knows no
// subsystem. It decides only who is let in, what a caller may do, and how
// much of the node a caller may use. Server owns the goroutines that serve
// connections, and Shutdown joins them. Calls that ask several shards or
// nodes start their own goroutines and join them before they return.
package edge
