//go:build !mutant_2

package wal

// syncSegments is false only in the build that the crash tests must find fault with.
const syncSegments = true
