// Package rpc serves the public API over HTTP: Connect, gRPC and gRPC-Web on
// one port, with health checks, reflection and metrics beside them. It checks
// and bounds what callers send, turns it into entity requests and turns their
// outcomes into answers; codes.go is the one place where errors get RPC codes.
//
// It never decides anything about an entity, a module or the cluster: that is
// behind the interfaces of Deps. Server owns the goroutines that serve
// connections; a SendStream call adds one that writes answers and joins it
// before the call ends, and a Subscribe call one for each node that it reads at.
// Shutdown joins all of them.
package rpc
