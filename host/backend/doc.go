// Package backend implements the interfaces of the API server with the parts of
// the node. Calls about data on a different node go to that node through its
// peers. The package makes no decisions about entities or the cluster: it
// reads, translates and delegates. It starts no goroutine that outlives a call
// or a subscription.
package backend
