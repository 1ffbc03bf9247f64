// Package sharding is the vocabulary of placement: entity, shard, node and
// replica ids, terms, and the map from an entity to its shard. It never does
// I/O and starts no goroutine; the machinery lives in its children.
package sharding

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of the names that address an entity, in bytes.
const (
	MaxEntityTypeBytes = 64
	MaxEntityIDBytes   = 256
)

// MetaShard is the metadata group: members, placement, module bindings and
// settings. It holds no entities.
const MetaShard ShardID = 0

// DefaultShards is the number of data shards of a new cluster.
const DefaultShards = 256

// ShardID numbers a shard. 0 is the metadata group, 1..n are data shards.
type ShardID uint32

// ReplicaID numbers one replica of one shard for ever: it is drawn from a
// counter in the metadata group and never used again, so a replica that lost
// its disk cannot return as its old self. It is the raft node id.
type ReplicaID uint64

// NodeID names a node (a process with a data directory). It is stable over
// restarts.
type NodeID string

// Term is a raft term of one shard.
type Term uint64

// StopReason says why a node applies no more of a replica's log.
type StopReason uint8

// The reasons. A replica that has stopped serves nothing and is replaced.
const (
	// NotStopped: the replica works.
	NotStopped StopReason = iota
	// StopUnsupported: its log holds an entry of a later release. The log is
	// whole: the replica goes on to vote and to store.
	StopUnsupported
	// StopDamaged: what the node has of the shard is damaged. The replica neither
	// votes nor stores.
	StopDamaged
	// Disputed: the replica works, but has other rows than another one, and too
	// few voters say which are right. It answers nobody and is not replaced. No
	// replica reports it as the reason for which it has stopped.
	Disputed
)

// String returns the reason for people; empty for NotStopped.
func (r StopReason) String() string {
	switch r {
	case NotStopped:
		return ""
	case StopUnsupported:
		return "unsupported"
	case Disputed:
		return "disputed"
	}
	return "damaged"
}

// EntityID addresses an entity within the cluster.
type EntityID struct {
	Type string // 1..64 bytes of [a-z0-9-]
	ID   string // 1..256 bytes of UTF-8 without control characters
}

// String returns "type/id" for people; it is not a key.
func (e EntityID) String() string { return e.Type + "/" + e.ID }

// Validate reports the first fault of the two names.
func (e EntityID) Validate() error {
	if err := ValidateEntityType(e.Type); err != nil {
		return err
	}
	return ValidateID(e.ID)
}

// ErrInvalidName is wrapped by every fault of an entity type or id. Retrying
// with the same name cannot succeed.
var ErrInvalidName = errors.New("invalid name")

// ValidateEntityType checks the alphabet and the length of an entity type.
func ValidateEntityType(t string) error {
	if t == "" {
		return fmt.Errorf("%w: the entity type is empty", ErrInvalidName)
	}
	if len(t) > MaxEntityTypeBytes {
		return fmt.Errorf("%w: the entity type has %d bytes, at most %d are allowed", ErrInvalidName, len(t), MaxEntityTypeBytes)
	}
	for i := 0; i < len(t); i++ {
		c := t[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("%w: the entity type has a character outside [a-z0-9-] at byte %d", ErrInvalidName, i)
		}
	}
	return nil
}

// ValidateID checks an entity id: UTF-8 of printable code points, so that ids
// can be separated by a zero byte in keys.
func ValidateID(id string) error {
	if id == "" {
		return fmt.Errorf("%w: the entity id is empty", ErrInvalidName)
	}
	if len(id) > MaxEntityIDBytes {
		return fmt.Errorf("%w: the entity id has %d bytes, at most %d are allowed", ErrInvalidName, len(id), MaxEntityIDBytes)
	}
	for i := 0; i < len(id); {
		c := id[i]
		if c < utf8.RuneSelf {
			if c < 0x20 || c == 0x7f {
				return fmt.Errorf("%w: the entity id has a control character at byte %d", ErrInvalidName, i)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(id[i:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Errorf("%w: the entity id is not UTF-8 at byte %d", ErrInvalidName, i)
		}
		if !Printable(r) {
			return fmt.Errorf("%w: the entity id has an unprintable character at byte %d", ErrInvalidName, i)
		}
		i += size
	}
	return nil
}

// Printable says which code points a name may have. They are listed here and
// not taken from a table of Unicode's, so that nodes of all releases give the
// same answer; guests are told the same in abi.ValidateEntityID. Refused are
// U+0000-001F, U+007F-009F, the line and paragraph separators U+2028-2029, the
// directional overrides U+202A-202E and U+2066-2069, U+FEFF and U+FFFE-FFFF.
func Printable(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f:
		return false
	case r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return false
	case r == 0xfeff, r == 0xfffe, r == 0xffff:
		return false
	}
	return true
}

// ShardOf maps an entity to one of n data shards, 1..n. The map is part of
// the on-disk format: it never changes. It is FNV-1a (64 bit) over the type,
// a zero byte and the id, finished with the murmur3 mixer, unsigned modulo n.
// n must be at least 1.
func ShardOf(e EntityID, n uint32) ShardID {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := 0; i < len(e.Type); i++ {
		h = (h ^ uint64(e.Type[i])) * prime
	}
	h *= prime // the zero byte
	for i := 0; i < len(e.ID); i++ {
		h = (h ^ uint64(e.ID[i])) * prime
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return ShardID(1 + h%uint64(n))
}

// NotLeaderError says that this node does not lead the shard. Leader is empty
// while none is known. A retry at Leader, or after a moment, is right.
type NotLeaderError struct {
	Shard  ShardID
	Term   Term
	Leader NodeID
	// Stopped says why the replica on the answering node has stopped, if it has
	// and there is no leader without it. A retry is right once it is replaced.
	Stopped StopReason
	// Missing is why there may be none. It stays on the answering node.
	Missing
}

// Missing names nodes without which a shard may have no leader.
type Missing struct {
	// Unheard have a replica of the shard, and the answering node does not hear
	// them.
	Unheard []NodeID
	// Lost had voters of the shard whose disks are lost, and with them a majority:
	// there will be no leader. Empty while a majority is left.
	Lost []NodeID
}

// maxUnheard bounds the nodes that the text of a NotLeaderError names.
const maxUnheard = 8

func (e *NotLeaderError) Error() string {
	if e.Stopped != NotStopped && e.Leader == "" {
		return fmt.Sprintf("shard %d has no leader: its replica on the answering node has stopped (%v)", e.Shard, e.Stopped)
	}
	if e.Leader == "" && len(e.Lost) > 0 {
		return fmt.Sprintf("shard %d has lost a majority of its voters with the disks of %s, and gets no leader: see 'hostd recover --help'", e.Shard, list(e.Lost))
	}
	if e.Leader == "" && len(e.Unheard) > 0 {
		return fmt.Sprintf("shard %d has no leader that the answering node reaches: it hears nothing of %s", e.Shard, list(e.Unheard))
	}
	in := ""
	if e.Term != 0 {
		in = fmt.Sprintf(" (term %d)", e.Term)
	}
	if e.Leader == "" {
		return fmt.Sprintf("shard %d has no known leader%s", e.Shard, in)
	}
	return fmt.Sprintf("shard %d is led by node %s%s", e.Shard, e.Leader, in)
}

// list names nodes for people, a bounded number of them.
func list(nodes []NodeID) string {
	var out strings.Builder
	for i, node := range nodes[:min(len(nodes), maxUnheard)] {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(string(node))
	}
	if more := len(nodes) - maxUnheard; more > 0 {
		fmt.Fprintf(&out, " and %d more", more)
	}
	return out.String()
}
