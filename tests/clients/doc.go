// Package clients has every kind of client tell one story to a cluster, in
// which a leader is killed: the client in Go, generated ones, in Node and in
// Chromium too, and requests of plain HTTP. What is generated is compiled as
// users do.
//
// It holds tests only.
package clients
