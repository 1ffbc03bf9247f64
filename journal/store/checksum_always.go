//go:build !mutant_7

package store

// verifyChecksums makes every value be checked before it is believed.
const verifyChecksums = true
