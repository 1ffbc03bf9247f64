package entity

import "github.com/hostd/hostd/host/request"

// bindingRevisions is what an executor knows of the revisions of a shard; E is the executor's
// entities.
//
//	Await, Fence --> wanted --Ask--> proposed --Done--> Now
//	Mute ---------------------------------------------> Unmuted
type bindingRevisions[E any] struct {
	// Now is the newest revision in the shard's log; it never falls.
	Now uint64

	wanted   uint64 // by what waits
	asked    bool   // a proposal with a revision is under way
	awaiting []E
	fences   []*request.Request
	muted    []E
}

// Await makes an entity wait until the log has the revision.
func (v *bindingRevisions[E]) Await(e E, revision uint64) {
	v.wanted = max(v.wanted, revision)
	v.awaiting = append(v.awaiting, e)
}

// Fence makes a request wait until the log has its revision.
func (v *bindingRevisions[E]) Fence(r *request.Request) {
	v.wanted = max(v.wanted, r.Revision)
	v.fences = append(v.fences, r)
}

// Waits reports that something waits for a revision in the log.
func (v *bindingRevisions[E]) Waits() bool { return len(v.awaiting)+len(v.fences) > 0 }

// Ask returns the revision that is to be proposed now, one at a time.
func (v *bindingRevisions[E]) Ask() (revision uint64, ask bool) {
	if !v.Waits() || v.asked {
		return 0, false
	}
	v.asked = true
	return v.wanted, true
}

// Done takes the outcome of a proposal, and returns what has waited for it. One
// that was dropped is asked for again.
func (v *bindingRevisions[E]) Done(revision uint64, err error) (awaited []E, fences []*request.Request) {
	v.asked = false
	if err != nil {
		return nil, nil
	}
	v.Now = max(v.Now, revision)
	return v.Drop()
}

// Drop forgets what waits for a revision in the log, and returns it.
func (v *bindingRevisions[E]) Drop() (awaited []E, fences []*request.Request) {
	awaited, fences = v.awaiting, v.fences
	v.awaiting, v.fences, v.wanted, v.asked = nil, nil, 0, false
	return awaited, fences
}

// Mute makes an entity wait until the node's bindings move.
func (v *bindingRevisions[E]) Mute(e E) { v.muted = append(v.muted, e) }

// Unmuted returns the entities that were muted.
func (v *bindingRevisions[E]) Unmuted() []E {
	muted := v.muted
	v.muted = nil
	return muted
}
