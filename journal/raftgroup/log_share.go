package raftgroup

import "slices"

// shareBytes returns how many bytes every log may keep. The result is the
// argument each, or less if logs of the given sizes would together keep more
// than total. Small logs keep everything, and the larger logs share the
// remaining bytes evenly. shareBytes sorts the sizes.
func shareBytes(sizes []int64, each, total int64) int64 {
	var sum int64
	for _, size := range sizes {
		sum += min(size, each)
	}
	if sum <= total {
		return each
	}
	slices.Sort(sizes)
	left := total
	for i, size := range sizes {
		size = min(size, each)
		share := left / int64(len(sizes)-i)
		if size > share {
			return share
		}
		left -= size
	}
	return each
}
