package entity

// queue is requests that wait, in order: a ring through run.next, so that
// waiting costs no memory.
type queue struct {
	last *Request
	len  int
}

func (q *queue) push(r *Request) {
	q.insert(r)
	q.last = r
}

// unshift puts a request before all others.
func (q *queue) unshift(r *Request) {
	if q.insert(r); q.last == nil {
		q.last = r
	}
}

// insert puts a request between the last and the first.
func (q *queue) insert(r *Request) {
	if q.last == nil {
		r.next = r
	} else {
		r.next, q.last.next = q.last.next, r
	}
	q.len++
}

// pop takes the first request out; nil when there is none.
func (q *queue) pop() *Request {
	if q.last == nil {
		return nil
	}
	r := q.last.next
	if q.last.next = r.next; r == q.last {
		q.last = nil
	}
	r.next = nil
	q.len--
	return r
}
