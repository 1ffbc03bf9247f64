// Package leaderproxy takes a call of the API to the node that leads its shard,
// tries it again at the next leader, and serves what other nodes bring so. A
// call goes from one node to another once.
//
// It never decides who leads, and starts no goroutine.
package leaderproxy
