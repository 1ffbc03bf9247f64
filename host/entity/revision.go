package entity

import "github.com/hostd/hostd/host/request"

// bindingRevisions tracks the revisions of a shard's activations. E is the
// executor's entity type.
//
//	Await, Fence --> wanted --Ask--> proposed --Done--> Now
//	Mute ---------------------------------------------> Unmuted
type bindingRevisions[E any] struct {
	// Now is the highest revision in the shard's log. It never decreases.
	Now uint64

	wanted   uint64 // highest revision that something waits for
	asked    bool   // a proposal with a revision is in flight
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

// Waits reports whether something waits for a revision in the log.
func (v *bindingRevisions[E]) Waits() bool { return len(v.awaiting)+len(v.fences) > 0 }

// Ask returns the revision to propose now, if any. Only one proposal is in
// flight at a time.
func (v *bindingRevisions[E]) Ask() (revision uint64, ask bool) {
	if !v.Waits() || v.asked {
		return 0, false
	}
	v.asked = true
	return v.wanted, true
}

// Done handles the outcome of a proposal and returns the entities and requests
// that can continue. If the proposal was lost, they continue to wait.
func (v *bindingRevisions[E]) Done(revision uint64, err error) (awaited []E, fences []*request.Request) {
	v.asked = false
	if err != nil {
		return nil, nil
	}
	v.Now = max(v.Now, revision)
	return v.Drop()
}

// Drop removes and returns everything that waits for a revision in the log.
func (v *bindingRevisions[E]) Drop() (awaited []E, fences []*request.Request) {
	awaited, fences = v.awaiting, v.fences
	v.awaiting, v.fences, v.wanted, v.asked = nil, nil, 0, false
	return awaited, fences
}

// Mute makes an entity wait until the node's activations change.
func (v *bindingRevisions[E]) Mute(e E) { v.muted = append(v.muted, e) }

// Unmuted removes and returns the entities that Mute made wait.
func (v *bindingRevisions[E]) Unmuted() []E {
	muted := v.muted
	v.muted = nil
	return muted
}
