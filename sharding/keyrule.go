package sharding

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKeyUntilBytes is the maximum length of a KeyRule's separator.
const MaxKeyUntilBytes = 16

// KeyRule defines which part of an entity's type and id is hashed to choose its
// shard, so that related entities can share a shard. The zero value hashes the
// type and the whole id. The rule of a type must not change once entities of
// the type may exist.
type KeyRule struct {
	// Group replaces the type in the hash. Entities of types in the same group
	// share a shard if their keys are equal. The type whose name is the group's
	// name belongs to the group too, unless it has a group of its own. If empty,
	// the type itself is hashed.
	Group string `json:"group,omitempty"`
	// Until ends the key: only the part of the id before the first Until is
	// hashed. If the id does not contain Until, or starts with it, the whole id
	// is hashed. If empty, the whole id is hashed.
	Until string `json:"until,omitempty"`
}

// Normalize returns the canonical form of the rule for an entity type. Compare
// rules only in this form.
func (r KeyRule) Normalize(entityType string) KeyRule {
	if r.Group == entityType {
		r.Group = ""
	}
	return r
}

// Validate returns an error wrapping ErrInvalidName if the rule is invalid. It
// avoids Unicode tables so that replicas of all releases agree.
func (r KeyRule) Validate() error {
	if r.Group != "" {
		if err := ValidateEntityType(r.Group); err != nil {
			return fmt.Errorf("%w: the group of a shard key is not a valid entity type name", ErrInvalidName)
		}
	}
	if len(r.Until) > MaxKeyUntilBytes {
		return fmt.Errorf("%w: the separator of a shard key has %d bytes, at most %d are allowed", ErrInvalidName, len(r.Until), MaxKeyUntilBytes)
	}
	if !utf8.ValidString(r.Until) {
		return fmt.Errorf("%w: the separator of a shard key is not UTF-8", ErrInvalidName)
	}
	for i := 0; i < len(r.Until); i++ {
		if r.Until[i] < 0x20 || r.Until[i] == 0x7f {
			return fmt.Errorf("%w: the separator of a shard key has a control character", ErrInvalidName)
		}
	}
	return nil
}

// String returns a description of the rule for display.
func (r KeyRule) String() string {
	if r == (KeyRule{}) {
		return "the whole id"
	}
	s := "the whole id"
	if r.Until != "" {
		s = fmt.Sprintf("the id up to %q", r.Until)
	}
	if r.Group != "" {
		s += " in group " + r.Group
	}
	return s
}

// key returns the type and the id that are hashed for the entity.
func (r KeyRule) key(e EntityID) EntityID {
	if r.Group != "" {
		e.Type = r.Group
	}
	if r.Until != "" {
		if i := strings.Index(e.ID, r.Until); i > 0 {
			e.ID = e.ID[:i]
		}
	}
	return e
}

// ShardOf maps an entity of a type with this rule to one of n data shards. Like
// the function ShardOf, the mapping is part of the on-disk format.
func (r KeyRule) ShardOf(e EntityID, n uint32) ShardID {
	if r != (KeyRule{}) {
		e = r.key(e)
	}
	return ShardOf(e, n)
}

// Locate maps an entity to its data shard without blocking. If the rule of the
// entity's type is not known yet, it returns the metadata shard and false.
type Locate func(EntityID) (ShardID, bool)

// OrDefault returns l. If l is nil, it returns the mapping of a cluster with n
// data shards whose types have no rules.
func (l Locate) OrDefault(n uint32) Locate {
	if l != nil {
		return l
	}
	return func(e EntityID) (ShardID, bool) { return ShardOf(e, n), true }
}
