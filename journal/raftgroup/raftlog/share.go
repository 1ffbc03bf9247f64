package raftlog

import "slices"

// Share is each, or less where logs of those sizes would keep more than total
// together. Those that have little keep it all; what is left is shared out
// evenly among the others. It sorts the sizes.
func Share(sizes []int64, each, total int64) int64 {
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
