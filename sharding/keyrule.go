package sharding

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKeyUntilBytes bounds the separator of a KeyRule.
const MaxKeyUntilBytes = 16

// KeyRule says what of an entity decides its shard, so that entities which
// belong together share one. The zero rule is the type and the whole id. A
// rule never changes once entities of the type may exist.
type KeyRule struct {
	// Group stands in the place of the type: types of one group with the same
	// key are in the same shard, and so is the type of that name, if it has no
	// group of its own. Empty is the type itself.
	Group string `json:"group,omitempty"`
	// Until ends the key: it is what stands in the id before the first Until.
	// An id without it, or that begins with it, is its own key. Empty is the
	// whole id.
	Until string `json:"until,omitempty"`
}

// Of returns the rule of an entity type in the one form that rules are
// compared in.
func (r KeyRule) Of(entityType string) KeyRule {
	if r.Group == entityType {
		r.Group = ""
	}
	return r
}

// Validate reports the first fault of a rule, which wraps ErrInvalidName. Every
// replica judges alike: it asks no table of Unicode.
func (r KeyRule) Validate() error {
	if r.Group != "" {
		if err := ValidateEntityType(r.Group); err != nil {
			return fmt.Errorf("%w: the group of a shard key is no name of an entity type", ErrInvalidName)
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

// String says the rule to people.
func (r KeyRule) String() string {
	if r == (KeyRule{}) {
		return "the whole id"
	}
	s := "the whole id"
	if r.Until != "" {
		s = fmt.Sprintf("the id until %q", r.Until)
	}
	if r.Group != "" {
		s += " in group " + r.Group
	}
	return s
}

// Key returns what of the entity is hashed: where it belongs, and which one it
// is there.
func (r KeyRule) Key(e EntityID) EntityID {
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

// ShardOf maps an entity of a type with this rule to one of n data shards. The
// map is part of the on-disk format, as that of the function ShardOf is.
func (r KeyRule) ShardOf(e EntityID, n uint32) ShardID {
	if r != (KeyRule{}) {
		e = r.Key(e)
	}
	return ShardOf(e, n)
}

// Locate maps an entity to its data shard. It does not block. Of a type whose
// rule is not known yet it says false, and the metadata shard.
type Locate func(EntityID) (ShardID, bool)

// Or returns l, or where that is nil the map of a cluster of n data shards in
// which no type has a rule.
func (l Locate) Or(n uint32) Locate {
	if l != nil {
		return l
	}
	return func(e EntityID) (ShardID, bool) { return ShardOf(e, n), true }
}
