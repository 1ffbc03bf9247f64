package meta

import (
	"fmt"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// Ownership is whose a type was when somebody was let change it, and whose it
// is to be: subjects, as bindings of roles have them, or empty for nobody.
type Ownership struct {
	Was string `json:"was,omitempty"`
	Is  string `json:"is,omitempty"`
}

// Owned makes a command of Bind, BindLimited or RollbackOf one that fails with
// ErrConflict unless the type is still o.Was's, and that makes it o.Is's. It is
// of sharding.VersionOwners.
func Owned(command []byte, o Ownership) []byte {
	c, err := decode(command)
	if err != nil {
		panic("metadata: " + err.Error()) // this package has made it
	}
	c.Owner = &o
	return encode(c)
}

// PutTypeOwner makes the command that gives a bound type another owner, from
// sharding.VersionOwners on; none where o.Is is empty. ErrConflict means that the
// type is not o.Was's any more.
func PutTypeOwner(entityType string, o Ownership) []byte {
	return encode(command{Op: opPutTypeOwner, EntityType: entityType, bindingCommand: bindingCommand{Owner: &o}})
}

// own makes b, of which the type may not be stored yet, the one's who o says.
func (t *transition) own(b *Binding, o *Ownership) error {
	if o == nil {
		return nil
	}
	if level := t.view.ClusterVersion(); level < sharding.VersionOwners {
		return fmt.Errorf("%w: owners of types are of level %d, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, sharding.VersionOwners, level)
	}
	if b.Owner != o.Was {
		return fmt.Errorf("%w: entity type %.64q has another owner than it had", ErrConflict, b.EntityType)
	}
	if err := checkOwner(o.Is); err != nil {
		return err
	}
	b.Owner = o.Is
	return nil
}

func (t *transition) putTypeOwner(entityType string, o Ownership) error {
	b, bound := t.view.bindings[entityType]
	if !bound {
		return fmt.Errorf("%w: %.64q", ErrUnknownType, entityType)
	}
	before := b.Owner
	if err := t.own(&b, &o); err != nil || b.Owner == before {
		return err
	}
	t.keep(b)
	return nil
}

// keep stores a binding without another revision of it.
func (t *transition) keep(b Binding) {
	put(&t.view.bindings, b.EntityType, b)
	t.store(prefixBinding+b.EntityType, b)
}

// IsForeign reports that entities of one type may send to those of another only
// if that one's manifest names theirs, because another subject owns it. That
// decides where roles do; a type without an owner takes messages as its module
// says.
func (v *View) IsForeign(to, from string) bool {
	owner := v.bindings[to].Owner
	return owner != "" && v.bindings[from].Owner != owner && v.ClusterVersion() >= sharding.VersionMessageReplies && v.SomebodyAdmin()
}

// ownedBy is the first entity type that belongs to a subject; empty: none.
func (v *View) ownedBy(subject string) (first string) {
	for entityType, b := range v.bindings {
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
