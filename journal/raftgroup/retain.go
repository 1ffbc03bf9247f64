package raftgroup

import "slices"

// retain is how many bytes of entries behind the durable index each group may
// keep for followers: RetainBytes, or less where the groups would keep more
// than RetainTotalBytes together. Those that have little keep it all; what is
// left is shared out evenly among the others.
func (c *Core) retain() int64 {
	each, left := c.opts.RetainBytes, c.opts.RetainTotalBytes
	sizes := c.sizes[:0]
	var sum int64
	for _, g := range c.order {
		if size := min(g.log.bytes, each); size > 0 {
			sizes = append(sizes, size)
			sum += size
		}
	}
	c.sizes = sizes
	if sum <= left {
		return each
	}
	slices.Sort(sizes)
	for i, size := range sizes {
		share := left / int64(len(sizes)-i)
		if size > share {
			return share
		}
		left -= size
	}
	return each
}
