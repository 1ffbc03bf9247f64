// Package subscription streams events to those who follow them or read them once:
// of one entity from its history, or of a type from the shards of the cluster,
// each in the order of its log. It reads at this node what is read well here, and
// the rest at the nodes that lead it.
//
// It never writes, and keeps nothing of a stream when its call has ended. A
// subscription has a goroutine for each node that it reads at, which it joins.
package subscription
