// Package devcluster runs nodes as child processes of this program on one
// machine: a cluster for development, for the demonstration and for the
// benchmark. It calls them only through the API. The caller that starts a
// cluster stops it; if the system supports it, remaining children end with
// their parent.
package devcluster
