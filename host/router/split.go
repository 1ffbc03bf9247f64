package router

import (
	"github.com/hostd/hostd/host/request"
)

// part is the requests of one Submit that go to the same node.
type part struct {
	to   target
	reqs []*request.Request
}

// split continues a Submit whose requests go to different nodes: reqs[:i] go to
// first, and reqs[i] has been admitted with decision v.
func (r *Router) split(reqs []*request.Request, i int, first, to target, v decision) {
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

// add adds a request to the part for its destination. It reuses the slices of
// earlier Submits.
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
