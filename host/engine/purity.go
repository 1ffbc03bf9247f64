//go:build !mutant_9 && !mutant_10

package engine

// pureNow is the clock of a guest that evolves state.
func pureNow(fixed int64) int64 { return fixed }

// systemSeed is the seed of a call's system stream.
func systemSeed(seed uint64) uint64 { return seed ^ systemStream }
