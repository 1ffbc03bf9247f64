package entity

import "github.com/hostd/hostd/host/request"

// activationRevisions tracks the revisions of a shard's activations. E is the
// executor's entity type.
//
//	Await, Fence --> wanted --Ask--> proposed --Done--> Now
//	AddPaused ------------ activations change --------> TakePaused
type activationRevisions[E any] struct {
	// Now is the highest revision in the shard's log. It never decreases.
	Now uint64

	wanted   uint64 // highest revision that something waits for
	asked    bool   // a proposal with a revision is in flight
	awaiting []E
	fences   []*request.Request
	paused   []E
}

// Await makes an entity wait until the log has the revision.
func (v *activationRevisions[E]) Await(e E, revision uint64) {
	v.wanted = max(v.wanted, revision)
	v.awaiting = append(v.awaiting, e)
}

// Fence makes a request wait until the log has its revision.
func (v *activationRevisions[E]) Fence(r *request.Request) {
	v.wanted = max(v.wanted, r.Revision)
	v.fences = append(v.fences, r)
}

// HasWaiters reports whether something waits for a revision in the log.
func (v *activationRevisions[E]) HasWaiters() bool { return len(v.awaiting)+len(v.fences) > 0 }

// Ask returns the revision to propose now, if any. Only one proposal is in
// flight at a time.
func (v *activationRevisions[E]) Ask() (revision uint64, ask bool) {
	if !v.HasWaiters() || v.asked {
		return 0, false
	}
	v.asked = true
	return v.wanted, true
}

// Done handles the outcome of a proposal and returns the entities and requests
// that can continue. If the proposal was lost, they continue to wait.
func (v *activationRevisions[E]) Done(revision uint64, err error) (awaited []E, fences []*request.Request) {
	v.asked = false
	if err != nil {
		return nil, nil
	}
	v.Now = max(v.Now, revision)
	return v.Drop()
}

// Drop removes and returns everything that waits for a revision in the log.
func (v *activationRevisions[E]) Drop() (awaited []E, fences []*request.Request) {
	awaited, fences = v.awaiting, v.fences
	v.awaiting, v.fences, v.wanted, v.asked = nil, nil, 0, false
	return awaited, fences
}

// AddPaused makes an entity wait until the node's activations change.
func (v *activationRevisions[E]) AddPaused(e E) { v.paused = append(v.paused, e) }

// TakePaused removes and returns the entities that AddPaused made wait.
func (v *activationRevisions[E]) TakePaused() []E {
	paused := v.paused
	v.paused = nil
	return paused
}
