// Package mutants checks the tests: each text of the catalog is a known fault
// of the code. The fault is planted while go builds the code, and some test
// must fail on it, because a suite that passes with a planted fault proves
// nothing. The package changes only two files of the tree: the table of faults,
// and the hashes of the faults that were found. Each test waits for the go
// commands that it starts.
package mutants
