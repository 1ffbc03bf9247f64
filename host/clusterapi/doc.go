// Package clusterapi implements the ClusterService of a node: it describes
// members and shards, submits operations to the coordinator, changes the
// policy, the settings, the roles and the cluster version, and streams what
// nodes and their guests report, and profiles of both. A node takes one profile
// of itself at a time.
//
// The services in handler.go and the other files map the API's messages to the
// interfaces View, Admin, UpgradeFinalizer, Policies, Settings, RoleStore and
// Initializer. Parts implements these on a running node; tests use fakes.
//
// A call owns the goroutines that it starts and joins them before it returns.
package clusterapi
