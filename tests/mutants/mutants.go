// Package mutants checks the tests: each text of the catalog is one known fault
// of the code, planted while go builds it, and some test must fail on it. A
// suite that stays green on a planted fault proves nothing. It never changes a
// file of the tree; the go commands that it starts are waited for by the test
// that starts them.
package mutants
