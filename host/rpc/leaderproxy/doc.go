// Package leaderproxy takes a call of the API to the node that leads its shard,
// tries it again at the next leader, and serves what other nodes bring so. A
// call goes from one node to another once.
//
// It never decides who leads. Each call to another node has a goroutine
// that ends the call once that node falls silent, and ends with it.
package leaderproxy
