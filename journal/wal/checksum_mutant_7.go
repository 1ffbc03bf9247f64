//go:build mutant_7

package wal

// verifyChecksums false is a planted fault: records are believed without their checksums.
const verifyChecksums = false
