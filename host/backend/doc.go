// Package backend is what the server of the API stands on: it answers calls from
// the parts of the node, and what lies on another node through its peers. It
// decides nothing about entities or the cluster; it reads, translates and asks
// those that do. It starts no goroutine that outlives a call or a subscription.
package backend
