// Package doctor finds problems of a cluster and its nodes, and names the
// commands that fix them. It first gathers facts, for which it only reads, and
// then derives findings from them without any I/O. Goroutines that ask nodes
// end before gather returns.
package doctor
