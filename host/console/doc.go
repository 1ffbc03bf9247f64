// Package console serves the web console: a page that shows a cluster, its
// entities and its modules, and acts on them by the public API alone.
//
// The page's sources are in web. What browsers get is bundled from them by
// package bundle and committed in dist, so that a build needs Go alone. The
// package starts no goroutine.
package console
