// Package console serves the web console: a page that shows a cluster, its
// entities and its modules, and operates on them only through the public API.
//
// The sources of the page are in web. Package bundle builds the files for
// browsers from them. These are committed in dist, so that building a node
// needs only Go. The package starts no goroutine.
package console
