// Package clients has the clients of each kind do what users have them do, on
// good days and on bad ones. Those in TypeScript are compiled, and run in Node.
//
// It holds tests only.
package clients
