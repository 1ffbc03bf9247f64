//go:build mutant_2

package wal

// syncSegments false is a planted fault: the log acknowledges what the disk may still lose.
const syncSegments = false
