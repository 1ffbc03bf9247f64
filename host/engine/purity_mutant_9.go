//go:build mutant_9

package engine

import "time"

// pureNow leaks the wall clock to a guest that evolves state.
func pureNow(int64) int64 { return time.Now().UnixNano() }

func systemSeed(seed uint64) uint64 { return seed ^ systemStream }
