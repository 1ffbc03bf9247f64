//go:build !mutant_7

package wal

// verifyChecksums is false only in the build that the damage tests must find fault with.
const verifyChecksums = true
