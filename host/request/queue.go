package request

// Queue is a FIFO queue of requests. It is a ring linked through
// ExecutorState.Next, so that waiting requests need no extra memory.
type Queue struct {
	last *Request
	len  int
}

// Push appends a request.
func (q *Queue) Push(r *Request) {
	q.insert(r)
	q.last = r
}

// Unshift puts a request in front of all others.
func (q *Queue) Unshift(r *Request) {
	if q.insert(r); q.last == nil {
		q.last = r
	}
}

// insert puts a request between the last and the first.
func (q *Queue) insert(r *Request) {
	if q.last == nil {
		r.Exec.Next = r
	} else {
		r.Exec.Next, q.last.Exec.Next = q.last.Exec.Next, r
	}
	q.len++
}

// First returns the first request. The queue must not be empty.
func (q *Queue) First() *Request { return q.last.Exec.Next }

// Pop removes and returns the first request; nil if the queue is empty.
func (q *Queue) Pop() *Request {
	if q.last == nil {
		return nil
	}
	r := q.last.Exec.Next
	if q.last.Exec.Next = r.Exec.Next; r == q.last {
		q.last = nil
	}
	r.Exec.Next = nil
	q.len--
	return r
}

// Len returns the number of waiting requests.
func (q *Queue) Len() int { return q.len }

// Has reports whether a request of the kind is in the queue.
func (q *Queue) Has(kind Kind) bool {
	for n, r := 0, q.last; n < q.len; n, r = n+1, r.Exec.Next {
		if r.Kind == kind {
			return true
		}
	}
	return false
}
