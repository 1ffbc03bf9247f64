// Package rpc serves the public API over HTTP: Connect, gRPC and gRPC-Web on
// one listener, with health checks, reflection and metrics beside them, and
// what is between nodes on another. It checks and bounds what callers send,
// turns it into entity requests and turns their outcomes into answers; package
// status tells callers of errors.
//
// It never decides anything about an entity, a module or the cluster: that is
// behind the interfaces of Deps. Server owns the goroutines that serve
// connections; Shutdown joins them. Calls that ask several shards or nodes start
// goroutines of their own, and join them before they end.
package rpc
