package raftgroup

import "slices"

// maxReadRounds bounds the ReadIndex rounds in progress per group.
const maxReadRounds = 4

// readQueue queues the reads of a group that wait for a ReadIndex confirmation,
// by token. Reads that arrive while a confirmation is in progress share the
// next confirmation, so that a thousand concurrent reads cost one round of
// heartbeats. It never calls raft itself.
type readQueue struct {
	waiting  []uint64 // not in a round yet
	rounds   []readRound
	inRounds int // number of reads in rounds
}

// readRound is one ReadIndex round and the reads that share it.
type readRound struct {
	context uint64
	tokens  []uint64
}

// Add adds a read.
func (q *readQueue) Add(token uint64) { q.waiting = append(q.waiting, token) }

// Len returns the number of unconfirmed reads.
func (q *readQueue) Len() int { return len(q.waiting) + q.inRounds }

// HasWaiting reports whether there are reads that are not in a round.
func (q *readQueue) HasWaiting() bool { return len(q.waiting) > 0 }

// IsFull reports whether no further round may start.
func (q *readQueue) IsFull() bool { return len(q.rounds) >= maxReadRounds }

// StartRound starts a round with the given context for the waiting reads.
func (q *readQueue) StartRound(context uint64) {
	q.rounds = append(q.rounds, readRound{context, q.waiting})
	q.inRounds += len(q.waiting)
	q.waiting = nil
}

// Confirm removes a confirmed round and returns its reads.
func (q *readQueue) Confirm(context uint64) []uint64 {
	i := slices.IndexFunc(q.rounds, func(r readRound) bool { return r.context == context })
	if i < 0 {
		return nil
	}
	tokens := q.rounds[i].tokens
	q.rounds = slices.Delete(q.rounds, i, i+1)
	q.inRounds -= len(tokens)
	return tokens
}

// TakeAll removes and returns all unconfirmed reads.
func (q *readQueue) TakeAll() (tokens []uint64) {
	for _, r := range q.rounds {
		tokens = append(tokens, r.tokens...)
	}
	tokens = append(tokens, q.waiting...)
	*q = readQueue{}
	return tokens
}
