package modules

import (
	"container/list"
	"sync"
	"time"

	"github.com/hostd/hostd/journal"
)

// Bounds of the remembered rejections.
const (
	refusedFor  = time.Hour
	maxRefusals = 1024
)

// refusals remembers modules that were rejected for their content. A rejection
// can cost a compilation of a minute, and only one compilation runs at a time,
// so for an hour such a module is rejected at once if it is uploaded again. The
// list is in memory only, so it is empty after an upgrade to a release that
// accepts the module. It is safe for concurrent use.
type refusals struct {
	mu    sync.Mutex
	by    map[journal.Digest]*list.Element
	order list.List // list of *refusal, oldest first
}

// refusal says why a module was rejected, and until when it is rejected at
// once.
type refusal struct {
	digest journal.Digest
	reason string
	until  time.Time
}

// find returns why a module was recently rejected. refused is false if the
// module was not rejected.
func (r *refusals) find(digest journal.Digest, now time.Time) (reason string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.by[digest]; e != nil && now.Before(e.Value.(*refusal).until) {
		return e.Value.(*refusal).reason, true
	}
	return "", false
}

// note records a rejection. If there are more than maxRefusals, the oldest
// rejections are dropped.
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
