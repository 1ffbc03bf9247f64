//go:build mutant_10

package engine

func pureNow(fixed int64) int64 { return fixed }

// systemSeed lets the order of a map into what a host function answers.
func systemSeed(seed uint64) uint64 {
	salts := make(map[uint64]bool)
	for salt := range uint64(100) {
		salts[salt] = true
	}
	for salt := range salts {
		return seed ^ salt
	}
	return seed
}
