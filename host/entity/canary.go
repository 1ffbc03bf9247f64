package entity

import "github.com/hostd/hostd/sharding"

// CanaryStage is the progress of a module's rollout for a type.
type CanaryStage struct {
	// Made is equal for activations that differ only in their revision. It is
	// the revision under which this node first served the module with these
	// limits, or 0 if no other activation equals this one.
	Made uint64
	// Canary serves a part of the entities. It may be nil.
	Canary *Canary
	// WritesPaused pauses writes of the entities until the node's activations change.
	WritesPaused bool
}

// Canary is a module that serves a part of a type's entities instead of the
// module that serves the rest.
type Canary struct {
	// Type is nil if the node cannot serve the canary's module. Then no module
	// serves these entities.
	Type *Type
	Part canaryPart
}

// canaryPart knows which of a type's entities a canary serves.
type canaryPart interface {
	// Serves reports whether the canary serves the entity. It does not block.
	Serves(sharding.EntityID) bool
}

// For returns the activation that serves an entity of the type: t, or the
// Type of its Canary. It returns nil if no activation serves the entity.
func (t *Type) For(id sharding.EntityID) *Type {
	if t == nil || t.Canary == nil || !t.Canary.Part.Serves(id) {
		return t
	}
	return t.Canary.Type
}

// same reports whether the two activations differ only in their revision, so
// that the state of an entity under one of them is valid under the other.
func (t *Type) same(other *Type) bool {
	return t == other || t != nil && other != nil && t.Made != 0 && t.Made == other.Made && t.Digest == other.Digest
}
