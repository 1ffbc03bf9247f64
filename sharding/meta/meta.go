// Package meta is the state machine of the metadata shard: which cluster this
// is, its members, where each shard's replicas live, the modules, which module
// serves which entity type, and the settings. It is pure: no clock, no
// randomness, no I/O, no goroutine; the same commands give the same bytes on
// every replica. It never decides anything: it records what the coordinator
// proposed, or says why it cannot.
package meta

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// Bounds of what the metadata shard holds. A command over one of them is
// answered with ErrInvalid.
const (
	MaxCommandBytes      = 512 << 10
	MaxShards            = 4096
	MaxMembers           = 128
	MaxReplicas          = 9              // of one data shard, those that leave included
	MaxMetaReplicas      = 2 * MaxMembers // of the metadata shard, likewise
	MaxRoles             = 16             // of one member
	MaxModules           = 4096
	MaxTypesPerModule    = 64
	MaxSignatureBytes    = 256
	maxUploaderBytes     = 512
	MaxBindings          = 4096
	MaxBindingHistory    = 32
	MaxBindingChanges    = 32
	MaxForcedByBytes     = 512
	MaxSettings          = 1024
	MaxSettingKeyBytes   = 128
	MaxSettingValueBytes = 16 << 10
	maxNameBytes         = 128
	maxNodeIDBytes       = 64
	maxAddressBytes      = 255
)

// Errors that a command's result carries. None is worth a retry of the same
// command in the same state.
var (
	// ErrInvalid: the command is not one of this version, is malformed, or is
	// over a bound.
	ErrInvalid = errors.New("metadata: invalid command")
	// ErrNoCluster: the cluster has not been created yet.
	ErrNoCluster = errors.New("metadata: the cluster is not created")
	// ErrClusterExists: another cluster was created here already.
	ErrClusterExists = errors.New("metadata: a cluster exists already")
	// ErrUnknownNode: the node is not a member.
	ErrUnknownNode = errors.New("metadata: unknown node")
	// ErrUnknownShard: the shard number is beyond the cluster's shards.
	ErrUnknownShard = errors.New("metadata: unknown shard")
	// ErrUnknownModule: no module with the digest has been uploaded.
	ErrUnknownModule = errors.New("metadata: unknown module")
	// ErrUnknownType: the module does not serve the entity type, or the
	// entity type has no binding.
	ErrUnknownType = errors.New("metadata: unknown entity type")
	// ErrNoPrevious: there is no earlier module to roll back to.
	ErrNoPrevious = errors.New("metadata: no earlier module to roll back to")
	// ErrShardKey: the module puts the entities of a type into other shards than
	// the one that the type was first bound to.
	ErrShardKey = errors.New("metadata: the shard key of an entity type never changes")
	// ErrConflict: the state has moved on and the command does not fit it: a
	// replica that is gone, a change that would leave a shard without a quorum,
	// a node that may not hold what it was given. Look again and decide anew.
	ErrConflict = errors.New("metadata: the command does not fit the state")
	// ErrQuota: the modules of the cluster, or of one uploader, are as many as
	// they may be. Removing some makes room.
	ErrQuota = errors.New("metadata: no room for another module")
	// ErrPutDown: the start of the node that would join is one that an operator
	// put down, or an earlier one. A new start of the node joins. It is an
	// ErrConflict.
	ErrPutDown = fmt.Errorf("%w: the node was put down", ErrConflict)
	// ErrLeft: the node that would join was ordered to leave, and has left, with
	// the disk that it has. It joins with another one. It is an ErrConflict.
	ErrLeft = fmt.Errorf("%w: the node has left", ErrConflict)
	// ErrUnsupported: a committed command, or a stored pair, that only a later
	// release writes. A replica that meets one must not go on: what others made
	// of it is unknown here.
	ErrUnsupported = errors.New("metadata: written by a later release")
	// ErrCorrupt: a stored key or value that this version did not write.
	ErrCorrupt = errors.New("metadata: unreadable stored value")
)

// Digest is the SHA-256 of a module's bytes; in JSON it is lower-case hex.
type Digest [32]byte

// String returns lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler: exactly 64 lower-case hex
// digits.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return fmt.Errorf("a digest has %d hex digits, not %d", 2*len(d), len(text))
	}
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return errors.New("a digest is lower-case hex")
		}
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// KV is one stored pair. A nil Value deletes the key.
type KV struct{ Key, Value []byte }

// Cluster is the identity that the create command fixed for ever.
type Cluster struct {
	ID        string `json:"id"`        // 1..64 bytes of [A-Za-z0-9._-]
	Format    uint32 `json:"format"`    // of everything on disk
	Shards    uint32 `json:"shards"`    // data shards, numbered 1..Shards
	CreatedAt int64  `json:"createdAt"` // unix nanoseconds
}

// Module describes an uploaded module. Its bytes live in each node's registry
// under the digest.
type Module struct {
	Digest      Digest   `json:"digest"`
	Size        int64    `json:"size"` // bytes
	Name        string   `json:"name"`
	Version     string   `json:"version,omitempty"`
	EntityTypes []string `json:"entityTypes"` // in the manifest's order
	UploadedAt  int64    `json:"uploadedAt"`  // unix nanoseconds
	// ShardKeys has the rules of those types that declare one.
	ShardKeys map[string]sharding.KeyRule `json:"shardKeys,omitempty"`
	// Signature is of who vouches for the module; from sharding.VersionSignatures
	// on. Who that is nodes judge, each for itself.
	Signature []byte `json:"signature,omitempty"`
	// Uploader is the subject that uploaded the module first, where nodes ask who
	// calls; from sharding.VersionRemoveModule on.
	Uploader string `json:"uploader,omitempty"`
	// UnusedSince is when the coordinator first found that nothing needs the
	// module, in unix nanoseconds; 0 where something does, or that was not looked
	// at yet. From sharding.VersionModuleRetention on.
	UnusedSince int64 `json:"unusedSince,omitempty"`
}

// Bound is one module serving an entity type, from a revision on.
type Bound struct {
	Digest    Digest `json:"digest"`
	TypeIndex int    `json:"typeIndex"` // place of the type in the module's manifest
	Revision  uint64 `json:"revision"`
	At        int64  `json:"at"` // unix nanoseconds
	// TookBack is the revision that a rollback made this one in place of.
	TookBack uint64 `json:"tookBack,omitempty"`
	// ForcedBy is who bound it although it did not fit what was stored.
	ForcedBy string `json:"forcedBy,omitempty"`
	// Snapshots are the modules, oldest first, whose snapshots it loads as its
	// own, at most MaxSnapshotModules; from sharding.VersionVerificationResults on.
	Snapshots []Digest `json:"snapshots,omitempty"`
	// Truncated are the modules whose snapshots it loads if the first events of an
	// entity are gone, at most MaxTruncatedModules: it was proved on all such
	// entities that it reads their states. Proved says that nothing else was
	// assumed later, unless Assumed does: then some of the list are from before
	// there were proofs. See Binding.TruncatedModules. All three from
	// sharding.VersionSnapshotProofs on.
	Truncated []Digest `json:"truncated,omitempty"`
	Proved    bool     `json:"proved,omitempty"`
	Assumed   bool     `json:"assumed,omitempty"`
	// First is the part that it served first, where it came by a Rollout; nil
	// where it came at once. From sharding.VersionRollouts on.
	First *Part `json:"first,omitempty"`
}

// Limits are what one entity type is held to, besides what each node allows;
// 0 is what the node allows. They belong to the type, whichever module serves
// it.
type Limits struct {
	CommandFuel int64 `json:"commandFuel,omitempty"` // units
	QueryFuel   int64 `json:"queryFuel,omitempty"`   // units
	MaxEvents   int64 `json:"maxEvents,omitempty"`   // of a command
	EventBytes  int64 `json:"eventBytes,omitempty"`  // of one event
	ReplyBytes  int64 `json:"replyBytes,omitempty"`
	// Guest memory of one instance, and of all those on a node.
	MemoryBytes     int64 `json:"memoryBytes,omitempty"`
	TypeMemoryBytes int64 `json:"typeMemoryBytes,omitempty"`
	// Commands a second on each node.
	RatePerSecond int64 `json:"ratePerSecond,omitempty"`
	// Fuel and bytes of the records of commands, a second on each node; from
	// sharding.VersionBudgets on.
	FuelPerSecond  int64 `json:"fuelPerSecond,omitempty"`
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
}

// Binding is the module that serves an entity type, and those that did before
// it, oldest first, at most MaxBindingHistory. History is not modified.
type Binding struct {
	EntityType string `json:"entityType"`
	Bound
	History []Bound `json:"history,omitempty"`
	Limits  Limits  `json:"limits,omitzero"`
	// ShardKey is the type's for ever: the rule of the module that was bound to
	// it first.
	ShardKey sharding.KeyRule `json:"shardKey,omitzero"`
	// Owner is the subject that says which module serves the type, beside admins;
	// empty: nobody yet. From sharding.VersionOwners on.
	Owner string `json:"owner,omitempty"`
	// Changes are those that led to the binding, the last MaxBindingChanges of
	// them; from sharding.VersionChanges on, see Log. Not modified.
	Changes []BindingChange `json:"changes,omitempty"`
	// Rollout is of the module that is on its way to serve the type, nil for none;
	// from sharding.VersionRollouts on.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Held is the revision since which the type is held, see HoldType; 0: it is
	// not. From sharding.VersionHolds on.
	Held uint64 `json:"held,omitempty"`
}
