//go:build mutant_7

package store

// verifyChecksums false is a planted fault: values are believed without their checksums.
const verifyChecksums = false
