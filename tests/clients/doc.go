// Package clients runs the same scenario (the story) with every kind of client
// on a cluster whose leader is killed: the Go client, generated clients, also
// in Node.js and Chromium, and plain HTTP requests. Generated code is compiled
// as users compile it.
//
// It contains only tests.
package clients
