package entity

import "github.com/hostd/hostd/sharding"

// CanaryStage is how far a module has come on its way to serve a type.
type CanaryStage struct {
	// Made is the revision under which this node began to serve the module under
	// the same bounds; 0 where no other revision is the same.
	Made uint64
	// Canary serves a part of the entities; nil serves none.
	Canary *Canary
	// Muted: the entities leave no record until the node's bindings move.
	Muted bool
}

// Canary is a module that serves a part of a type's entities in the place of
// the one that serves the others.
type Canary struct {
	// Type is nil where the node cannot serve it: these entities are not served
	// by the other module then.
	Type *Type
	// Serves reports whether the entity belongs to the part. It does not block.
	Serves func(sharding.EntityID) bool
}

// For is the binding that serves an entity of the type, t itself or that of its
// Canary; nil where there is none.
func (t *Type) For(id sharding.EntityID) *Type {
	if t == nil || t.Canary == nil || !t.Canary.Serves(id) {
		return t
	}
	return t.Canary.Type
}

// Same reports that what one binding has made of an entity is what the other
// one makes of it: they differ by nothing but their revision.
func (t *Type) Same(other *Type) bool {
	return t == other || t != nil && other != nil && t.Made != 0 && t.Made == other.Made && t.Digest == other.Digest
}
