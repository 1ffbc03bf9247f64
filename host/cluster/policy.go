package cluster

import (
	"cmp"

	"github.com/hostd/hostd/sharding/meta"
)

// PolicyOf is the cluster's policy, with a node's own where the metadata has
// nothing; stored says that it has one.
func PolicyOf(view *meta.View, own meta.Policy) (p meta.Policy, stored bool) {
	if p, stored = view.Policy(); !stored {
		return own, false
	}
	p.DeadAfter = cmp.Or(p.DeadAfter, own.DeadAfter)
	return p, true
}
