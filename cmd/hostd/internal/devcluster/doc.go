// Package devcluster runs nodes of this same program as child processes on one
// machine: a cluster for development, for the demonstration and for the
// benchmark. It talks to them through the API alone. Who starts a cluster stops
// it; a child that is left ends with its parent where the system can do that.
package devcluster
