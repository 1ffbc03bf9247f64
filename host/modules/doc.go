// Package modules has the modules of a cluster on its nodes, and the entity types
// that are bound to them. A module is stored on a majority before it is
// acknowledged, fetched where it is missing, copied to every node in the
// background, and compiled everywhere before a type is bound to it. Types is the
// table in which lanes find what serves a type, Settings and ShardKeys are what
// the cluster has set for it. Modules that were refused lately are remembered. GuestLines
// keeps the newest lines that guests wrote and never waits for a follower: one that
// is slow gets the number of lines it missed.
// Run takes the caller's goroutine; those that it starts it joins.
package modules
