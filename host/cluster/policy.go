package cluster

import (
	"cmp"

	"github.com/hostd/hostd/sharding/meta"
)

// PolicyOf returns the cluster's policy. Values that the metadata lacks come
// from the node's own policy. stored reports whether the metadata has a policy.
func PolicyOf(view *meta.View, own meta.Policy) (p meta.Policy, stored bool) {
	if p, stored = view.Policy(); !stored {
		return own, false
	}
	p.DeadAfter = cmp.Or(p.DeadAfter, own.DeadAfter)
	return p, true
}
