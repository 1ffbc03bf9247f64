// Package reads queues the reads of a group that wait for a ReadIndex
// confirmation. Reads that arrive while a confirmation is in progress share the
// next confirmation, so that a thousand concurrent reads cost one round of
// heartbeats. It never calls raft itself, and starts no goroutine.
package reads

import "slices"

// maxRounds bounds the ReadIndex rounds in progress per group.
const maxRounds = 4

// Queue holds a group's reads by token.
type Queue struct {
	waiting  []uint64 // not in a round yet
	rounds   []round
	inRounds int // number of reads in rounds
}

// round is one ReadIndex round and the reads that share it.
type round struct {
	context uint64
	tokens  []uint64
}

// Add adds a read.
func (q *Queue) Add(token uint64) { q.waiting = append(q.waiting, token) }

// Len returns the number of unconfirmed reads.
func (q *Queue) Len() int { return len(q.waiting) + q.inRounds }

// HasWaiting reports whether there are reads that are not in a round.
func (q *Queue) HasWaiting() bool { return len(q.waiting) > 0 }

// IsFull reports whether no further round may start.
func (q *Queue) IsFull() bool { return len(q.rounds) >= maxRounds }

// StartRound starts a round with the given context for the waiting reads.
func (q *Queue) StartRound(context uint64) {
	q.rounds = append(q.rounds, round{context, q.waiting})
	q.inRounds += len(q.waiting)
	q.waiting = nil
}

// Confirm removes a confirmed round and returns its reads.
func (q *Queue) Confirm(context uint64) []uint64 {
	i := slices.IndexFunc(q.rounds, func(r round) bool { return r.context == context })
	if i < 0 {
		return nil
	}
	tokens := q.rounds[i].tokens
	q.rounds = slices.Delete(q.rounds, i, i+1)
	q.inRounds -= len(tokens)
	return tokens
}

// TakeAll removes and returns all unconfirmed reads.
func (q *Queue) TakeAll() (tokens []uint64) {
	for _, r := range q.rounds {
		tokens = append(tokens, r.tokens...)
	}
	tokens = append(tokens, q.waiting...)
	*q = Queue{}
	return tokens
}
