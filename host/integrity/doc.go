// Package integrity looks for damage while a node runs: it reads the store's tables
// through, compares rows with the sums that they have to have, and replicas with
// each other. What is damaged stops; to replace it is the coordinator's business.
// Its goroutines are the caller's.
package integrity
