package router

import (
	"github.com/hostd/hostd/host/request"
)

// part is the requests of one Submit that go to one node.
type part struct {
	to   target
	reqs []*request.Request
}

// split goes on with a Submit whose requests do not all go to one node:
// reqs[:i] go to first, and reqs[i] has been admitted.
func (r *Router) split(reqs []*request.Request, i int, first, to target, v verdict) {
	parts, _ := r.splits.Get().(*[]part)
	if parts == nil {
		parts = new([]part)
	}
	for _, q := range reqs[:i] {
		add(parts, first, q)
	}
	for {
		if v == send {
			add(parts, to, reqs[i])
		}
		if i++; i == len(reqs) {
			break
		}
		to, v = r.admit(reqs[i])
	}
	for k := range *parts {
		p := &(*parts)[k]
		r.dispatch(p.to, p.reqs)
		clear(p.reqs)
		p.reqs = p.reqs[:0]
	}
	*parts = (*parts)[:0]
	r.splits.Put(parts)
}

// add puts a request with those of the same way. The lists of earlier Submits
// are used again.
func add(parts *[]part, to target, q *request.Request) {
	list := *parts
	for k := range list {
		if list[k].to == to {
			list[k].reqs = append(list[k].reqs, q)
			return
		}
	}
	if len(list) < cap(list) {
		list = list[:len(list)+1]
		list[len(list)-1].to = to
	} else {
		list = append(list, part{to: to})
	}
	last := &list[len(list)-1]
	last.reqs = append(last.reqs[:0], q)
	*parts = list
}
