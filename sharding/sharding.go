// Package sharding defines the vocabulary of placement: ids of entities,
// shards, nodes and replicas, terms, and the mapping from an entity to its
// shard. It does no I/O and starts no goroutine; the machinery lives in its
// subpackages.
package sharding

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits on the names that address an entity, in bytes.
const (
	MaxEntityTypeBytes = 64
	MaxEntityIDBytes   = 256
)

// MetaShard is the metadata shard. Its raft group stores members, placement,
// module bindings and settings. It holds no entities.
const MetaShard ShardID = 0

// DefaultShards is the number of data shards of a new cluster.
const DefaultShards = 256

// ShardID numbers a shard. 0 is the metadata group, 1..n are data shards.
type ShardID uint32

// ReplicaID identifies one replica of one shard and doubles as its raft node
// id. It is allocated from a counter in the metadata shard and never reused. If
// a node loses its disk, its old replicas therefore cannot come back under the
// same id and vote again.
type ReplicaID uint64

// NodeID names a node (a process with a data directory). It is stable across
// restarts.
type NodeID string

// Term is a raft term of one shard.
type Term uint64

// StopReason says why a node no longer applies a replica's log.
type StopReason uint8

// Stop reasons. A stopped replica serves no requests and gets replaced.
const (
	// NotStopped: the replica is working.
	NotStopped StopReason = iota
	// StopUnsupported: the log contains an entry written by a later release.
	// The log itself is intact, so the replica continues to vote and to store
	// entries.
	StopUnsupported
	// StopDamaged: the node's data for the shard is damaged. The replica
	// neither votes nor stores entries.
	StopDamaged
	// Disputed: the replica works, but its rows differ from those of another
	// replica, and too few voters have answered to decide which copy is correct.
	// It serves no requests but is not replaced. Replicas never report Disputed
	// as the reason they stopped.
	Disputed
)

// String returns the reason for display; it is empty for NotStopped.
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

// String returns "type/id" for display. It is not a storage key.
func (e EntityID) String() string { return e.Type + "/" + e.ID }

// Validate returns an error for the first invalid part of the id.
func (e EntityID) Validate() error {
	if err := ValidateEntityType(e.Type); err != nil {
		return err
	}
	return ValidateID(e.ID)
}

// ErrInvalidName is wrapped by all errors about invalid entity types and ids.
// Retrying with the same name cannot succeed.
var ErrInvalidName = errors.New("invalid name")

// ValidateEntityType checks the length and the characters of an entity type.
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

// ValidateID checks that an entity id consists of printable UTF-8. In
// particular it has no zero byte, which separates ids in storage keys.
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

// Printable reports whether a code point may appear in a name. The excluded
// ranges are spelled out here instead of taken from the unicode package, so
// that nodes of all releases agree; abi.ValidateEntityID documents the same
// rule for guests. Excluded are U+0000-001F, U+007F-009F, the line and
// paragraph separators U+2028-2029, the directional overrides U+202A-202E and
// U+2066-2069, U+FEFF and U+FFFE-FFFF.
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

// ShardOf maps an entity to one of the n data shards 1..n; n must be at least
// 1. The mapping is part of the on-disk format and never changes: FNV-1a (64
// bit) over the type, a zero byte and the id, finalized with the murmur3 mixer,
// modulo n.
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

// NotLeaderError is returned if this node does not lead the shard. Leader is
// empty if no leader is known. Retry on the node Leader or, if it is empty,
// after a short delay.
type NotLeaderError struct {
	Shard  ShardID
	Term   Term
	Leader NodeID
	// Stopped is set if the replica on the answering node has stopped and the
	// shard has no leader without it. Retry once the replica has been replaced.
	Stopped StopReason
	// Missing explains why the shard may have no leader. It is not sent to
	// other nodes.
	Missing
}

// Missing lists nodes whose absence may leave a shard without a leader.
type Missing struct {
	// Unreachable nodes have a replica of the shard, but the answering node cannot
	// reach them.
	Unreachable []NodeID
	// Lost nodes held a majority of the shard's voters and have lost their
	// disks, so no leader can be elected. Lost is empty as long as a majority
	// is left.
	Lost []NodeID
}

// maxListedNodes limits how many nodes the text of a NotLeaderError names.
const maxListedNodes = 8

func (e *NotLeaderError) Error() string {
	if e.Stopped != NotStopped && e.Leader == "" {
		return fmt.Sprintf("shard %d has no leader: its replica on the answering node has stopped (%v)", e.Shard, e.Stopped)
	}
	if e.Leader == "" && len(e.Lost) > 0 {
		return fmt.Sprintf("shard %d has lost a majority of its voters with the disks of %s and cannot elect a leader: see 'hostd recover --help'", e.Shard, joinNodes(e.Lost))
	}
	if e.Leader == "" && len(e.Unreachable) > 0 {
		return fmt.Sprintf("shard %d has no leader that the answering node can reach: it cannot reach %s", e.Shard, joinNodes(e.Unreachable))
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

// joinNodes formats a list of nodes for display, at most maxListedNodes of
// them.
func joinNodes(nodes []NodeID) string {
	var out strings.Builder
	for i, node := range nodes[:min(len(nodes), maxListedNodes)] {
		if i > 0 {
			out.WriteString(", ")
		}
		out.WriteString(string(node))
	}
	if more := len(nodes) - maxListedNodes; more > 0 {
		fmt.Fprintf(&out, " and %d more", more)
	}
	return out.String()
}
