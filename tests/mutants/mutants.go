// Package mutants checks the tests: each text of the catalog is one known fault
// of the code, planted while go builds it, and some test must fail on it. A
// suite that stays green on a planted fault proves nothing. Of the tree it
// changes the table of the faults alone, and the hashes of those that were
// found; the go commands that it starts are waited for by the test that starts
// them.
package mutants
