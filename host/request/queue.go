package request

// Queue is requests that wait, in order: a ring through Lane.Next, so that
// waiting costs no memory.
type Queue struct {
	last *Request
	len  int
}

// Push puts a request behind all others.
func (q *Queue) Push(r *Request) {
	q.insert(r)
	q.last = r
}

// Unshift puts a request before all others.
func (q *Queue) Unshift(r *Request) {
	if q.insert(r); q.last == nil {
		q.last = r
	}
}

// insert puts a request between the last and the first.
func (q *Queue) insert(r *Request) {
	if q.last == nil {
		r.Lane.Next = r
	} else {
		r.Lane.Next, q.last.Lane.Next = q.last.Lane.Next, r
	}
	q.len++
}

// First returns the first request; the queue is not empty.
func (q *Queue) First() *Request { return q.last.Lane.Next }

// Pop takes the first request out; nil when there is none.
func (q *Queue) Pop() *Request {
	if q.last == nil {
		return nil
	}
	r := q.last.Lane.Next
	if q.last.Lane.Next = r.Lane.Next; r == q.last {
		q.last = nil
	}
	r.Lane.Next = nil
	q.len--
	return r
}

// Len is how many requests wait.
func (q *Queue) Len() int { return q.len }

// Has reports that a request of that kind is among them.
func (q *Queue) Has(kind Kind) bool {
	for n, r := 0, q.last; n < q.len; n, r = n+1, r.Lane.Next {
		if r.Kind == kind {
			return true
		}
	}
	return false
}
