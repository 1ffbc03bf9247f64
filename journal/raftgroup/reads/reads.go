// Package reads has the reads of a group that wait until its leader knows that it
// still leads: those that came meanwhile share a round of raft.
// It never asks raft itself, and starts no goroutine.
package reads

import "slices"

// maxRounds bounds the confirmations under way in a group; reads that come
// meanwhile share the next one.
const maxRounds = 4

// Queue has a group's reads, by their tokens.
type Queue struct {
	waiting []uint64 // in no round yet
	rounds  []round
	asked   int // reads in rounds
}

// round is one confirmation of leadership and the reads that share it.
type round struct {
	context uint64
	tokens  []uint64
}

// Add adds a read.
func (q *Queue) Add(token uint64) { q.waiting = append(q.waiting, token) }

// Len is how many reads are not confirmed.
func (q *Queue) Len() int { return len(q.waiting) + q.asked }

// Waiting says whether there are reads in no round.
func (q *Queue) Waiting() bool { return len(q.waiting) > 0 }

// Full says that no round may begin.
func (q *Queue) Full() bool { return len(q.rounds) >= maxRounds }

// Ask begins a round of that context for the reads that wait.
func (q *Queue) Ask(context uint64) {
	q.rounds = append(q.rounds, round{context, q.waiting})
	q.asked += len(q.waiting)
	q.waiting = nil
}

// Confirm takes a confirmed round out and returns its reads.
func (q *Queue) Confirm(context uint64) []uint64 {
	i := slices.IndexFunc(q.rounds, func(r round) bool { return r.context == context })
	if i < 0 {
		return nil
	}
	tokens := q.rounds[i].tokens
	q.rounds = slices.Delete(q.rounds, i, i+1)
	q.asked -= len(tokens)
	return tokens
}

// Take returns all reads that are not confirmed, for good.
func (q *Queue) Take() (tokens []uint64) {
	for _, r := range q.rounds {
		tokens = append(tokens, r.tokens...)
	}
	tokens = append(tokens, q.waiting...)
	*q = Queue{}
	return tokens
}
