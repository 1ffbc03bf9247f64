package meta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

const commandVersion = 1

// Operation names. They are part of the log format.
const (
	opCreateCluster = "create_cluster"
	opPutMember     = "put_member"
	opPlace         = "place"
	opPutModule     = "put_module"
	opBind          = "bind"
	opRollback      = "rollback"
	opPutSetting    = "put_setting"
	opJoin          = "join"
	opSetStatus     = "set_status"
	opRemoveMember  = "remove_member"
	opChange        = "change"
	opPutPolicy     = "put_policy"
	opSetDraining   = "set_draining"
	opRaiseLevel    = "raise_level"   // since version 2; also raises to it
	opRecoverShard  = "recover_shard" // since version 2

	opRemoveModule     = "remove_module"   // since version 2
	opCollectModules   = "collect_modules" // since version 2
	opPutVerified      = "put_verified"    // since version 2
	opPutRollouts      = "put_rollouts"    // since version 2
	opPauseTypeWrites  = "hold_type"       // since version 2
	opResumeTypeWrites = "release_type"    // since version 2

	opPutRole           = "put_role" // this and the following since version 2
	opDeleteRole        = "delete_role"
	opPutRoleBinding    = "put_role_binding"
	opDeleteRoleBinding = "delete_role_binding"
	opPutTypeOwner      = "put_type_owner"
	opPutToken          = "put_token"
	opDeleteToken       = "delete_token"
)

var operations = []string{
	opCreateCluster, opPutMember, opPlace, opPutModule, opBind, opRollback, opPutSetting, opJoin,
	opSetStatus, opRemoveMember, opChange, opPutPolicy, opSetDraining, opRaiseLevel, opRecoverShard, opRemoveModule, opCollectModules, opPutVerified, opPutRollouts, opPauseTypeWrites, opResumeTypeWrites,
	opPutRole, opDeleteRole, opPutRoleBinding, opDeleteRoleBinding, opPutTypeOwner, opPutToken, opDeleteToken,
}

// command is the encoding of a metadata command: a JSON object with v, op, and
// the members of the operation.
type command struct {
	Version       int                  `json:"v"`
	Op            string               `json:"op"`
	Cluster       *Cluster             `json:"cluster,omitempty"`
	BootstrapNode *Member              `json:"founder,omitempty"`
	Member        *Member              `json:"member,omitempty"`
	Place         []PlaceOn            `json:"place,omitempty"`
	Module        *Module              `json:"module,omitempty"`
	EntityType    string               `json:"entityType,omitempty"`
	Digest        *Digest              `json:"digest,omitempty"`
	At            int64                `json:"at,omitempty"`
	Revision      uint64               `json:"revision,omitempty"`
	Limits        *Limits              `json:"limits,omitempty"`
	Over          *overSet             `json:"over,omitempty"` // since version 2
	Setting       *settingSet          `json:"setting,omitempty"`
	Status        *statusSet           `json:"status,omitempty"`
	Change        *Change              `json:"change,omitempty"`
	Policy        *Policy              `json:"policy,omitempty"`
	Was           *Policy              `json:"was,omitempty"`
	Raise         *clusterVersionRaise `json:"raise,omitempty"`
	Recover       *recoverSet          `json:"recover,omitempty"`

	activationCommand
	accessCommand
}

// activationCommand has the members of binding commands that were added in
// version 2 and later.
type activationCommand struct {
	Owner    *Ownership          `json:"owner,omitempty"`
	By       string              `json:"by,omitempty"`
	Verified *VerificationResult `json:"verified,omitempty"`
	Back     *backSet            `json:"back,omitempty"`
	Rollouts *rolloutSet         `json:"rollouts,omitempty"`
}

// accessCommand has the members of role and token commands.
type accessCommand struct {
	Role              *access.Role       `json:"role,omitempty"`
	RoleDelete        *roleDelete        `json:"roleDelete,omitempty"`
	RoleBinding       *access.Binding    `json:"roleBinding,omitempty"`
	RoleBindingDelete *roleBindingDelete `json:"roleBindingDelete,omitempty"`
	TokenPut          *tokenPut          `json:"tokenPut,omitempty"`
	TokenDelete       *tokenDelete       `json:"tokenDelete,omitempty"`
	First             bool               `json:"first,omitempty"` // reject if an admin exists
}

type settingSet struct {
	Key    string `json:"key"`
	Value  []byte `json:"value,omitempty"`
	Delete bool   `json:"delete,omitempty"`
}

// overSet is the revision that a binding replaces; 0 if the type has no
// binding.
type overSet struct {
	Revision uint64 `json:"revision"`
	ForcedBy string `json:"forcedBy,omitempty"`
	// Truncated is added to Bound.Truncated, and Assumed sets Bound.Assumed.
	Truncated []Digest `json:"truncated,omitempty"`
	Assumed   bool     `json:"assumed,omitempty"`
}

type statusSet struct {
	Node        sharding.NodeID `json:"node"`
	Incarnation uint64          `json:"incarnation,omitempty"`
	Status      MemberStatus    `json:"status,omitempty"`
	Downed      bool            `json:"downed,omitempty"`
	Draining    bool            `json:"draining,omitempty"`
}

// Change changes the replicas of one shard atomically. Parts of it that were
// already done are skipped, so a change can be retried.
type Change struct {
	Shard sharding.ShardID `json:"shard"`
	// Add gives nodes new learner replicas. Nodes that already have a replica
	// keep it.
	Add []sharding.NodeID `json:"add,omitempty"`
	// Promote turns learners into voters, Demote voters into learners.
	Promote []sharding.ReplicaID `json:"promote,omitempty"`
	Demote  []sharding.ReplicaID `json:"demote,omitempty"`
	// Retire makes replicas leave, and Forget drops replicas that have left.
	// Both skip ids that are not in the placement.
	Retire []sharding.ReplicaID `json:"retire,omitempty"`
	Forget []sharding.ReplicaID `json:"forget,omitempty"`
}

// PlaceOn asks for voters of a shard on the nodes, in this order.
type PlaceOn struct {
	Shard sharding.ShardID  `json:"shard"`
	Nodes []sharding.NodeID `json:"nodes"`
}

// CreateCluster returns the command that turns an empty metadata shard into
// cluster c with one member, the bootstrapping node. Its replica of the
// metadata shard has id BootstrapReplica. The cluster version starts at the
// highest version that this node supports. Repeating the command changes
// nothing; a different cluster is rejected with ErrClusterExists.
func CreateCluster(c Cluster, founder Member) []byte {
	return encode(command{Op: opCreateCluster, Cluster: &c, BootstrapNode: &founder})
}

// CreateClusterUnder is CreateCluster with an initial policy. The bootstrapping
// node must support sharding.VersionPolicy.
func CreateClusterUnder(p Policy, c Cluster, founder Member) []byte {
	return encode(command{Op: opCreateCluster, Cluster: &c, BootstrapNode: &founder, Policy: &p})
}

// BootstrapReplica is the id of the bootstrapping node's replica of the
// metadata shard, the first id that is allocated.
const BootstrapReplica sharding.ReplicaID = 1

// Join returns the command that admits a node, or readmits it after a restart.
// The status of m is ignored.
//
// If the node is new or has a different disk, it becomes a joining member with
// a new learner of the metadata shard, and the replicas of the lost disk start
// to leave. If the disk is known, the node keeps its status, except that a node
// that was down is up again. The result's Joined says what to create.
//
// ErrConflict means either that a newer incarnation of the node has already
// joined (if the incarnation is lower than the member's), or that the node's
// replica of the metadata shard is still leaving. In the second case, the node
// must keep the replica and retry later. The caller must make sure that an
// earlier incarnation of the node is no longer running.
func Join(m Member) []byte { return encode(command{Op: opJoin, Member: &m}) }

// SetStatus returns the command that changes a member's status. If incarnation
// is not 0 and differs from the member's, the command fails with ErrConflict.
func SetStatus(node sharding.NodeID, incarnation uint64, status MemberStatus) []byte {
	return encode(command{Op: opSetStatus, Status: &statusSet{Node: node, Incarnation: incarnation, Status: status}})
}

// Down returns the command by which an operator declares a node dead. Contact
// with the node does not bring it back; only a new incarnation that joins does.
func Down(node sharding.NodeID) []byte {
	return encode(command{Op: opSetStatus, Status: &statusSet{Node: node, Status: StatusDown, Downed: true}})
}

// SetDraining returns the command by which an operator starts or ends draining
// a node, which then leads nothing and is given nothing. If incarnation is not
// 0 and differs from the member's, the command fails with ErrConflict, because
// a restart ends a drain.
func SetDraining(node sharding.NodeID, incarnation uint64, draining bool) []byte {
	return encode(command{Op: opSetDraining, Status: &statusSet{Node: node, Incarnation: incarnation, Draining: draining}})
}

// RemoveMember returns the command that removes a member that is leaving or
// down and holds no more replicas. Removing an unknown member succeeds.
func RemoveMember(node sharding.NodeID) []byte {
	return encode(command{Op: opRemoveMember, Status: &statusSet{Node: node}})
}

// AddReplica returns the command that creates learners of the shard on the
// nodes.
func AddReplica(shard sharding.ShardID, nodes ...sharding.NodeID) []byte {
	return ChangeReplicas(Change{Shard: shard, Add: nodes})
}

// Promote returns the command that turns learners into voters.
func Promote(shard sharding.ShardID, ids ...sharding.ReplicaID) []byte {
	return ChangeReplicas(Change{Shard: shard, Promote: ids})
}

// Retire returns the command that makes replicas leave their group.
func Retire(shard sharding.ShardID, ids ...sharding.ReplicaID) []byte {
	return ChangeReplicas(Change{Shard: shard, Retire: ids})
}

// Forget returns the command that drops replicas that have left.
func Forget(shard sharding.ShardID, ids ...sharding.ReplicaID) []byte {
	return ChangeReplicas(Change{Shard: shard, Forget: ids})
}

// ChangeReplicas returns the command of a change. The result's Placements has
// the new placement of the shard.
func ChangeReplicas(c Change) []byte { return encode(command{Op: opChange, Change: &c}) }

// PutPolicy returns the command that sets the cluster's policy.
func PutPolicy(p Policy) []byte { return encode(command{Op: opPutPolicy, Policy: &p}) }

// ChangePolicy is PutPolicy with optimistic concurrency control: it fails with
// ErrConflict unless the current policy equals was (the zero Policy if none is
// set) or already equals p. It requires sharding.VersionPolicy.
func ChangePolicy(was, p Policy) []byte {
	return encode(command{Op: opPutPolicy, Policy: &p, Was: &was})
}

// PutMember returns the command that stores a member. Nodes are admitted with
// Join.
func PutMember(m Member) []byte { return encode(command{Op: opPutMember, Member: &m}) }

// Place returns the command that creates replicas with new ids on the named
// nodes for each shard that has no placement. Placed shards are left unchanged.
// The result has the placements of all requested shards.
func Place(on ...PlaceOn) []byte { return encode(command{Op: opPlace, Place: on}) }

// PutModule returns the command that registers an uploaded module. A known
// module is left unchanged, except that a new signature replaces the old
// signature from sharding.VersionSignatures on.
func PutModule(m Module) []byte { return encode(command{Op: opPutModule, Module: &m}) }

// RemoveModule returns the command that removes a module. It requires
// sharding.VersionRemoveModule. It fails with ErrConflict if the module serves
// a type or if a rollback may return to it. Removing an unknown module
// succeeds.
func RemoveModule(digest Digest) []byte {
	return encode(command{Op: opRemoveModule, Digest: &digest})
}

// Bind returns the command that makes the module serve the entity type under a
// new revision. Binding the module that already serves the type changes
// nothing. at is in Unix nanoseconds.
func Bind(entityType string, digest Digest, at int64) []byte {
	return encode(command{Op: opBind, EntityType: entityType, Digest: &digest, At: at})
}

// BindLimited is like Bind, but also sets the type's limits, which Bind leaves
// unchanged. New limits get a new revision but no entry in the history that
// Rollback uses.
func BindLimited(entityType string, digest Digest, at int64, l Limits) []byte {
	return encode(command{Op: opBind, EntityType: entityType, Digest: &digest, At: at, Limits: &l})
}

// BindOver is Bind, or BindLimited if l is not nil, with optimistic concurrency
// control: it fails with ErrConflict unless the type is served under revision
// over (0 if the type has no binding) or already as requested. It requires
// sharding.VersionBindOver.
func BindOver(entityType string, digest Digest, at int64, over uint64, l *Limits) []byte {
	return BindForced(entityType, digest, at, over, l, "")
}

// BindRestored is BindOver for a type that was served in a different cluster.
// The proofs from that cluster about modules whose snapshots replace truncated
// histories remain valid, because the entities are restored too. It requires
// sharding.VersionSnapshotProofs.
func BindRestored(entityType string, digest Digest, at int64, over uint64, l *Limits, r RestoredActivation) []byte {
	return encode(command{Op: opBind, EntityType: entityType, Digest: &digest, At: at, Over: &overSet{Revision: over, Truncated: r.Truncated, Assumed: r.Assumed}, Limits: l})
}

// BindForced is BindOver for a module that failed the compatibility check. by
// is the principal that forced the activation, at most 512 bytes.
func BindForced(entityType string, digest Digest, at int64, over uint64, l *Limits, by string) []byte {
	return encode(command{Op: opBind, EntityType: entityType, Digest: &digest, At: at, Over: &overSet{Revision: over, ForcedBy: by}, Limits: l})
}

// Rollback returns the command that reactivates the previous module of the
// entity type under a new revision. The current module is dropped from the
// history, so a second rollback goes back one module further.
func Rollback(entityType string, at int64) []byte {
	return encode(command{Op: opRollback, EntityType: entityType, At: at})
}

// RollbackOf is Rollback for a type that is served under the given revision. If
// that revision has already been rolled back, nothing changes. If the type is
// served under any other revision, the command fails with ErrConflict. It
// requires sharding.VersionRollbackOf.
func RollbackOf(entityType string, revision uint64, at int64) []byte {
	return encode(command{Op: opRollback, EntityType: entityType, At: at, Revision: revision})
}

// PutSetting returns the command that sets a setting.
func PutSetting(key string, value []byte) []byte {
	return encode(command{Op: opPutSetting, Setting: &settingSet{Key: key, Value: value}})
}

// DeleteSetting returns the command that removes a setting. Removing a missing
// setting succeeds.
func DeleteSetting(key string) []byte {
	return encode(command{Op: opPutSetting, Setting: &settingSet{Key: key, Delete: true}})
}

func encode(c command) []byte {
	c.Version = commandVersion
	return mustJSON(c)
}

// mustJSON encodes the package's own types, whose encoding cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("metadata: encode %T: %v", v, err))
	}
	return b
}

// Check returns ErrInvalid for a command that must not be proposed, because
// replicas of this release would reject it in every state or would stop at it.
func Check(body []byte) error {
	c, err := decode(body)
	switch {
	case errors.Is(err, ErrUnsupported):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return err
	case c.Raise != nil && c.Raise.Level > sharding.MaxVersion:
		return fmt.Errorf("%w: cluster version %d, this release supports %v", ErrInvalid, c.Raise.Level, sharding.SupportedVersions)
	}
	return nil
}

// decode decodes a command. It returns ErrUnsupported for anything that this
// release does not know. Ignoring an unknown member would apply a different
// command than was committed, and rejecting the command would differ from newer
// replicas, which apply it.
func decode(body []byte) (command, error) {
	var c command
	if len(body) > MaxCommandBytes {
		return c, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrInvalid, len(body), MaxCommandBytes)
	}
	if err := strictJSON(body, &c); err != nil {
		return c, fmt.Errorf("%w: not a command of version %d", ErrUnsupported, commandVersion)
	}
	if c.Version != commandVersion {
		return c, fmt.Errorf("%w: command version %d", ErrUnsupported, c.Version)
	}
	if !slices.Contains(operations, c.Op) {
		return c, fmt.Errorf("%w: operation %.40q", ErrUnsupported, c.Op)
	}
	for _, m := range []*Member{c.BootstrapNode, c.Member} {
		if m != nil && m.Status != "" && !m.Status.isKnown() {
			return c, fmt.Errorf("%w: member status %.40q", ErrUnsupported, string(m.Status))
		}
	}
	if c.Status != nil && c.Status.Status != "" && !c.Status.Status.isKnown() {
		return c, fmt.Errorf("%w: member status %.40q", ErrUnsupported, string(c.Status.Status))
	}
	return c, nil
}

func strictJSON(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("trailing bytes after the value")
	}
	return nil
}
