// Package roles answers the API's calls about roles, who has them, and the
// tokens that the cluster keeps. What it is told to keep it hands to a Store;
// it decides no call, and starts no goroutine.
package roles
