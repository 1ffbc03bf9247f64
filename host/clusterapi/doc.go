// Package clusterapi answers the ClusterService of a node: it describes members
// and shards, gives orders to the coordinator, changes the policy, the settings,
// the roles and the cluster version, and streams what nodes and their guests
// report.
//
// The services in handler.go and its neighbors map the API's messages to the
// interfaces View, Admin, Levels, Policies, Settings and Initializer. Parts answers
// these on a running node; tests put doubles in their place.
//
// A call owns the goroutines that it starts and waits for them before it returns.
package clusterapi
