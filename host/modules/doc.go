// Package modules manages the modules of a cluster on its nodes, and their
// activations for entity types. A module is stored on a majority of the nodes
// before its upload is acknowledged, fetched by nodes that need it, copied to
// every node in the background, and compiled everywhere before it is activated
// for a type. Types is the table in which executors look up the module of a
// type. Settings and ShardKeys hold the cluster's settings for types. Recently
// rejected modules are remembered, so that they are not compiled again.
// GuestLines keeps the newest log lines of guests and never waits for
// followers; a slow follower gets the number of lines it missed. Run runs in
// the caller's goroutine and joins the goroutines that it starts.
package modules
