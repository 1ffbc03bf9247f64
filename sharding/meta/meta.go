// Package meta is the state machine of the metadata shard: the cluster's
// identity, its members, the placement of each shard's replicas, modules,
// bindings of modules to entity types, roles, tokens and settings. It is pure
// (no clock, no randomness, no I/O, no goroutine): the same commands produce
// the same bytes on every replica. It makes no decisions of its own. It applies
// the proposals of the coordinator and of operators, or returns the reason why
// it cannot.
package meta

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// Limits of the metadata shard. A command that exceeds a limit fails with
// ErrInvalid.
const (
	MaxCommandBytes      = 512 << 10
	MaxShards            = 4096
	MaxMembers           = 128
	MaxReplicas          = 9              // replicas of one data shard, including leaving ones
	MaxMetaReplicas      = 2 * MaxMembers // replicas of the metadata shard, including leaving ones
	MaxRoles             = 16             // roles of one member
	MaxModules           = 4096
	MaxTypesPerModule    = 64
	MaxSignatureBytes    = 256
	maxUploaderBytes     = 512
	MaxActivations       = 4096
	MaxActivationHistory = 32
	MaxActivationChanges = 32
	MaxForcedByBytes     = 512
	maxSettings          = 1024
	MaxSettingKeyBytes   = 128
	MaxSettingValueBytes = 16 << 10
	maxNameBytes         = 128
	maxNodeIDBytes       = 64
	maxAddressBytes      = 255
)

// Errors in command results. Retrying the same command in the same state cannot
// succeed.
var (
	// ErrInvalid: the command is malformed, has an unknown version or exceeds a
	// limit.
	ErrInvalid = errors.New("metadata: invalid command")
	// ErrNoCluster: the cluster has not been created yet.
	ErrNoCluster = errors.New("metadata: the cluster does not exist yet")
	// ErrClusterExists: a different cluster has already been created in this
	// metadata shard.
	ErrClusterExists = errors.New("metadata: the cluster already exists")
	// ErrUnknownNode: the node is not a member.
	ErrUnknownNode = errors.New("metadata: unknown node")
	// ErrUnknownShard: the shard number is out of range.
	ErrUnknownShard = errors.New("metadata: unknown shard")
	// ErrUnknownModule: no module with the digest has been uploaded.
	ErrUnknownModule = errors.New("metadata: unknown module")
	// ErrUnknownType: the module does not serve the entity type, or the
	// entity type has no binding.
	ErrUnknownType = errors.New("metadata: unknown entity type")
	// ErrNoPrevious: there is no earlier module to roll back to.
	ErrNoPrevious = errors.New("metadata: there is no previous module to roll back to")
	// ErrShardKey: the module's shard key rule for a type differs from the rule of
	// the type's first module.
	ErrShardKey = errors.New("metadata: the shard key of an entity type cannot change")
	// ErrConflict: the command conflicts with the current state, for example
	// because a replica is gone, a shard would lose its quorum, or a node may not
	// hold the replica. Read the new state and decide again.
	ErrConflict = errors.New("metadata: the command conflicts with the current state")
	// ErrQuota: the cluster or the uploader has reached its module quota.
	// Remove modules to make room.
	ErrQuota = errors.New("metadata: the module quota is exhausted")
	// ErrNodeDowned: the node tries to join with an incarnation that an
	// operator declared down, or with an earlier incarnation. Restart the node
	// to join. The error wraps ErrConflict.
	ErrNodeDowned = fmt.Errorf("%w: the node was declared down", ErrConflict)
	// ErrLeft: the node tries to join with the disk with which it has left the
	// cluster. The node must use a new disk. The error wraps ErrConflict.
	ErrLeft = fmt.Errorf("%w: the node has left the cluster", ErrConflict)
	// ErrUnsupported: a committed command or a stored pair was written by a
	// later release. The replica must stop, because it cannot know how newer
	// replicas applied it.
	ErrUnsupported = errors.New("metadata: written by a later release")
	// ErrCorrupt: a stored key or value is malformed; no release writes it in this
	// form.
	ErrCorrupt = errors.New("metadata: unreadable stored value")
)

// Digest is the SHA-256 of a module's bytes. Its JSON form is lower-case hex.
type Digest [32]byte

// String returns lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It accepts exactly 64
// lower-case hex digits.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return fmt.Errorf("a digest must have %[2]d hex digits, got %[1]d", 2*len(d), len(text))
	}
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return errors.New("a digest must be lower-case hex")
		}
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// KV is one stored pair. A nil Value deletes the key.
type KV struct{ Key, Value []byte }

// Cluster is the identity of a cluster, fixed when it was created.
type Cluster struct {
	ID        string `json:"id"`        // 1..64 bytes of [A-Za-z0-9._-]
	Format    uint32 `json:"format"`    // format of all data on disk
	Shards    uint32 `json:"shards"`    // data shards, numbered 1..Shards
	CreatedAt int64  `json:"createdAt"` // Unix nanoseconds
}

// Module describes an uploaded module. Each node's registry stores the bytes
// under the digest.
type Module struct {
	Digest      Digest   `json:"digest"`
	Size        int64    `json:"size"` // bytes
	Name        string   `json:"name"`
	Version     string   `json:"version,omitempty"`
	EntityTypes []string `json:"entityTypes"` // in manifest order
	UploadedAt  int64    `json:"uploadedAt"`  // Unix nanoseconds
	// ShardKeys has the rules of the types that declare one.
	ShardKeys map[string]sharding.KeyRule `json:"shardKeys,omitempty"`
	// Signature is the module's signature; from sharding.VersionSignatures on.
	// Each node decides for itself which keys it trusts.
	Signature []byte `json:"signature,omitempty"`
	// Uploader is the subject that first uploaded the module, if callers are
	// authenticated; from sharding.VersionRemoveModule on.
	Uploader string `json:"uploader,omitempty"`
	// UnusedSince is when the coordinator first found the module unused, in
	// Unix nanoseconds. It is 0 if the module is in use or has not been checked
	// yet. From sharding.VersionModuleRetention on.
	UnusedSince int64 `json:"unusedSince,omitempty"`
}

// Bound is a module that serves an entity type from a revision on.
type Bound struct {
	Digest    Digest `json:"digest"`
	TypeIndex int    `json:"typeIndex"` // index of the type in the module's manifest
	Revision  uint64 `json:"revision"`
	At        int64  `json:"at"` // Unix nanoseconds
	// TookBack is the revision that was rolled back to make this one.
	TookBack uint64 `json:"tookBack,omitempty"`
	// ForcedBy is the principal that bound the module although it failed the
	// compatibility check.
	ForcedBy string `json:"forcedBy,omitempty"`
	// Snapshots are the modules, oldest first, whose snapshots this module
	// loads as if they were its own, at most MaxSnapshotModules; from
	// sharding.VersionVerificationResults on.
	Snapshots []Digest `json:"snapshots,omitempty"`
	// Truncated are the modules whose snapshots this module loads if the first
	// events of an entity are gone, at most MaxTruncatedModules. A verification of
	// all such entities has proved that the module reads their states. Proved
	// means that the list contains only proved modules. If Assumed is also set,
	// some of them were added before proofs existed. See
	// Activation.TruncatedModules. All three fields are set from
	// sharding.VersionSnapshotProofs on.
	Truncated []Digest `json:"truncated,omitempty"`
	Proved    bool     `json:"proved,omitempty"`
	Assumed   bool     `json:"assumed,omitempty"`
	// First is the part that the module served first if it was introduced by a
	// Rollout, and nil otherwise. From sharding.VersionRollouts on.
	First *Part `json:"first,omitempty"`
}

// Limits restrict an entity type beyond the limits of each node; 0 means that
// only the node's limit applies. Limits belong to the type and stay when its
// module changes.
type Limits struct {
	CommandFuel int64 `json:"commandFuel,omitempty"` // units
	QueryFuel   int64 `json:"queryFuel,omitempty"`   // units
	MaxEvents   int64 `json:"maxEvents,omitempty"`   // per command
	EventBytes  int64 `json:"eventBytes,omitempty"`  // per event
	ReplyBytes  int64 `json:"replyBytes,omitempty"`
	// Guest memory per instance, and of all instances of the type on a node.
	MemoryBytes     int64 `json:"memoryBytes,omitempty"`
	TypeMemoryBytes int64 `json:"typeMemoryBytes,omitempty"`
	// Commands per second on each node.
	RatePerSecond int64 `json:"ratePerSecond,omitempty"`
	// Fuel and record bytes of commands per second on each node; from
	// sharding.VersionBudgets on.
	FuelPerSecond  int64 `json:"fuelPerSecond,omitempty"`
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
}

// Activation is the binding of an entity type: the module that serves the type,
// and its predecessors in History, oldest first, at most MaxBindingHistory.
// History must not be modified.
type Activation struct {
	EntityType string `json:"entityType"`
	Bound
	History []Bound `json:"history,omitempty"`
	Limits  Limits  `json:"limits,omitzero"`
	// ShardKey is the rule of the first module bound to the type. It never
	// changes.
	ShardKey sharding.KeyRule `json:"shardKey,omitzero"`
	// Owner is the subject that decides, apart from admins, which module serves
	// the type; empty if the type has no owner. From sharding.VersionOwners on.
	Owner string `json:"owner,omitempty"`
	// Changes are the last MaxBindingChanges changes that led to the binding;
	// from sharding.VersionChanges on, see ChangeLog. Must not be modified.
	Changes []ActivationChange `json:"changes,omitempty"`
	// Rollout is the rollout of a different module, or nil if there is none; from
	// sharding.VersionRollouts on.
	Rollout *Rollout `json:"rollout,omitempty"`
	// PausedSince is the revision since which the type's writes are paused, see
	// PauseTypeWrites; 0 if they are not. From sharding.VersionWritePauses on.
	PausedSince uint64 `json:"held,omitempty"`
}
