package meta

import (
	"fmt"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// Ownership is a change of owner, conditional on the previous owner. Both are
// subjects as in role bindings, or empty for no owner.
type Ownership struct {
	Was string `json:"was,omitempty"`
	Is  string `json:"is,omitempty"`
}

// WithOwner makes a command of Bind, BindLimited or RollbackOf also change the
// owner of the type from o.Was to o.Is. The command fails with ErrConflict if
// the owner is no longer o.Was. It requires sharding.VersionOwners.
func WithOwner(command []byte, o Ownership) []byte {
	c, err := decode(command)
	if err != nil {
		panic("metadata: " + err.Error()) // the command was made by this package
	}
	c.Owner = &o
	return encode(c)
}

// PutTypeOwner returns the command that changes the owner of a bound type; an
// empty o.Is removes the owner. The command fails with ErrConflict if the owner
// is no longer o.Was. It requires sharding.VersionOwners.
func PutTypeOwner(entityType string, o Ownership) []byte {
	return encode(command{Op: opPutTypeOwner, EntityType: entityType, activationCommand: activationCommand{Owner: &o}})
}

// setOwner changes the owner of b, which may not be stored yet, if o is not
// nil.
func (t *transition) setOwner(b *Activation, o *Ownership) error {
	if o == nil {
		return nil
	}
	if level := t.view.ClusterVersion(); level < sharding.VersionOwners {
		return fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionOwners.NeededBy("type owners need", level))
	}
	if b.Owner != o.Was {
		return fmt.Errorf("%w: the owner of entity type %.64q was changed concurrently", ErrConflict, b.EntityType)
	}
	if err := checkOwner(o.Is); err != nil {
		return err
	}
	b.Owner = o.Is
	return nil
}

func (t *transition) putTypeOwner(entityType string, o Ownership) error {
	b, bound := t.view.activations[entityType]
	if !bound {
		return fmt.Errorf("%w: %.64q", ErrUnknownType, entityType)
	}
	before := b.Owner
	if err := t.setOwner(&b, &o); err != nil || b.Owner == before {
		return err
	}
	t.storeActivation(b)
	return nil
}

// storeActivation stores a binding without a new revision.
func (t *transition) storeActivation(b Activation) {
	put(&t.view.activations, b.EntityType, b)
	t.store(prefixActivation+b.EntityType, b)
}

// IsForeign reports whether the manifest of type to must name type from to
// accept messages from it, because the types have different owners. It returns
// false if role checks are off, or if to has no owner; to then accepts the
// messages that its module declares.
func (v *View) IsForeign(to, from string) bool {
	owner := v.activations[to].Owner
	return owner != "" && v.activations[from].Owner != owner && v.ClusterVersion() >= sharding.VersionMessageReplies && v.HasAdmin()
}

// ownedBy returns the first entity type that a subject owns, or the empty
// string.
func (v *View) ownedBy(subject string) (first string) {
	for entityType, b := range v.activations {
		if b.Owner == subject && (first == "" || entityType < first) {
			first = entityType
		}
	}
	return first
}

func checkOwner(subject string) error {
	if subject == "" {
		return nil
	}
	if err := access.CheckOwner(subject); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
