package modules

import (
	"container/list"
	"sync"
	"time"

	"github.com/hostd/hostd/journal"
)

// Bounds of the modules that are remembered as refused.
const (
	refusedFor  = time.Hour
	maxRefusals = 1024
)

// refusals are modules that were refused for what they are. Finding out can
// cost a compilation of a minute, and one is made at a time: a module that comes
// again is refused at once, for an hour. A release that takes it starts anew. It
// is safe for concurrent use.
type refusals struct {
	mu    sync.Mutex
	by    map[journal.Digest]*list.Element
	order list.List // of *refusal, the oldest in front
}

// refusal is why a module was refused, and until when nobody tries it again.
type refusal struct {
	digest journal.Digest
	reason string
	until  time.Time
}

// find returns why a module was refused, if it was lately.
func (r *refusals) find(digest journal.Digest, now time.Time) (reason string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.by[digest]; e != nil && now.Before(e.Value.(*refusal).until) {
		return e.Value.(*refusal).reason, true
	}
	return "", false
}

// note notes that a module is refused. Beyond maxRefusals the oldest are
// forgotten.
func (r *refusals) note(digest journal.Digest, reason string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[journal.Digest]*list.Element{}
	}
	if e := r.by[digest]; e != nil {
		r.order.Remove(e)
	}
	r.by[digest] = r.order.PushBack(&refusal{digest, reason, now.Add(refusedFor)})
	for r.order.Len() > maxRefusals || !now.Before(r.order.Front().Value.(*refusal).until) {
		delete(r.by, r.order.Remove(r.order.Front()).(*refusal).digest)
	}
}
