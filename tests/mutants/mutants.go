// Package mutants checks the tests. Each text of the catalog describes a fault,
// which is planted while go builds the code. At least one test must then fail,
// because a suite that passes with a planted fault proves nothing. The package
// changes only two files of the tree: the table of faults, and the hashes of
// the faults that were found. Each test waits for the go commands that it
// starts.
package mutants
