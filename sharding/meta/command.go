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

// Operation names. They are part of the log's format.
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
	opRaiseLevel    = "raise_level"   // from level 2 on, or to it
	opRecoverShard  = "recover_shard" // from level 2 on

	opRemoveModule   = "remove_module"   // from level 2 on
	opCollectModules = "collect_modules" // likewise
	opPutVerified    = "put_verified"    // likewise
	opPutRollouts    = "put_rollouts"    // likewise
	opHoldType       = "hold_type"       // likewise
	opReleaseType    = "release_type"    // likewise

	opPutRole           = "put_role" // this and those below from level 2 on
	opDeleteRole        = "delete_role"
	opPutRoleBinding    = "put_role_binding"
	opDeleteRoleBinding = "delete_role_binding"
	opPutTypeOwner      = "put_type_owner"
	opPutToken          = "put_token"
	opDeleteToken       = "delete_token"
)

var operations = []string{
	opCreateCluster, opPutMember, opPlace, opPutModule, opBind, opRollback, opPutSetting, opJoin,
	opSetStatus, opRemoveMember, opChange, opPutPolicy, opSetDraining, opRaiseLevel, opRecoverShard, opRemoveModule, opCollectModules, opPutVerified, opPutRollouts, opHoldType, opReleaseType,
	opPutRole, opDeleteRole, opPutRoleBinding, opDeleteRoleBinding, opPutTypeOwner, opPutToken, opDeleteToken,
}

// command is the bytes of one metadata command: a JSON object whose members
// besides v and op are those of the operation.
type command struct {
	Version    int                  `json:"v"`
	Op         string               `json:"op"`
	Cluster    *Cluster             `json:"cluster,omitempty"`
	Founder    *Member              `json:"founder,omitempty"`
	Member     *Member              `json:"member,omitempty"`
	Place      []PlaceOn            `json:"place,omitempty"`
	Module     *Module              `json:"module,omitempty"`
	EntityType string               `json:"entityType,omitempty"`
	Digest     *Digest              `json:"digest,omitempty"`
	At         int64                `json:"at,omitempty"`
	Revision   uint64               `json:"revision,omitempty"`
	Limits     *Limits              `json:"limits,omitempty"`
	Over       *overSet             `json:"over,omitempty"` // from level 2 on
	Setting    *settingSet          `json:"setting,omitempty"`
	Status     *statusSet           `json:"status,omitempty"`
	Change     *Change              `json:"change,omitempty"`
	Policy     *Policy              `json:"policy,omitempty"`
	Was        *Policy              `json:"was,omitempty"`
	Raise      *clusterVersionRaise `json:"raise,omitempty"`
	Recover    *recoverSet          `json:"recover,omitempty"`

	bindingCommand
	accessCommand
}

// bindingCommand has the members of commands about bindings that are of level 2
// and later.
type bindingCommand struct {
	Owner    *Ownership  `json:"owner,omitempty"`
	By       string      `json:"by,omitempty"`
	Verified *Verified   `json:"verified,omitempty"`
	Back     *backSet    `json:"back,omitempty"`
	Rollouts *rolloutSet `json:"rollouts,omitempty"`
}

// accessCommand has the members of commands about roles and tokens.
type accessCommand struct {
	Role              *access.Role       `json:"role,omitempty"`
	RoleDelete        *roleDelete        `json:"roleDelete,omitempty"`
	RoleBinding       *access.Binding    `json:"roleBinding,omitempty"`
	RoleBindingDelete *roleBindingDelete `json:"roleBindingDelete,omitempty"`
	TokenPut          *tokenPut          `json:"tokenPut,omitempty"`
	TokenDelete       *tokenDelete       `json:"tokenDelete,omitempty"`
	First             bool               `json:"first,omitempty"` // only while nobody is admin
}

type settingSet struct {
	Key    string `json:"key"`
	Value  []byte `json:"value,omitempty"`
	Delete bool   `json:"delete,omitempty"`
}

// overSet is what a binding comes in the place of; 0 is nothing.
type overSet struct {
	Revision uint64 `json:"revision"`
	ForcedBy string `json:"forcedBy,omitempty"`
	// Truncated are added to those of the Bound, and Assumed is of it.
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

// Change changes the replicas of one shard, all at once or not at all. What is
// as asked already is left, so that a change may be sent again.
type Change struct {
	Shard sharding.ShardID `json:"shard"`
	// Add gives the nodes replicas with fresh ids, as learners. A node that has
	// one keeps it.
	Add []sharding.NodeID `json:"add,omitempty"`
	// Promote makes learners voters, Demote voters learners.
	Promote []sharding.ReplicaID `json:"promote,omitempty"`
	Demote  []sharding.ReplicaID `json:"demote,omitempty"`
	// Retire lets replicas leave; Forget drops those that have left. Ids that
	// the placement does not have are passed over by these two.
	Retire []sharding.ReplicaID `json:"retire,omitempty"`
	Forget []sharding.ReplicaID `json:"forget,omitempty"`
}

// PlaceOn asks for voting replicas of a shard on the nodes, in order.
type PlaceOn struct {
	Shard sharding.ShardID  `json:"shard"`
	Nodes []sharding.NodeID `json:"nodes"`
}

// CreateCluster makes the command that turns an empty metadata shard into
// cluster c with one member, the founder. The founder's replica of the
// metadata shard gets FounderReplica. The cluster begins at the highest level
// that the founder speaks. The same command again is accepted and
// changes nothing; another cluster is ErrClusterExists.
func CreateCluster(c Cluster, founder Member) []byte {
	return encode(command{Op: opCreateCluster, Cluster: &c, Founder: &founder})
}

// CreateClusterUnder is CreateCluster with the policy that the cluster begins
// with; the founder speaks sharding.VersionPolicy.
func CreateClusterUnder(p Policy, c Cluster, founder Member) []byte {
	return encode(command{Op: opCreateCluster, Cluster: &c, Founder: &founder, Policy: &p})
}

// FounderReplica is the replica id of the founder's copy of the metadata
// shard: the first number of the counter.
const FounderReplica sharding.ReplicaID = 1

// Join makes the command that admits a node, or admits it again after a start.
// The status of m is passed over. A node that is new, or that has another disk
// than before, becomes a joining member and gets a fresh learner of the
// metadata shard; the replicas of the lost disk leave. A node that is known by
// its disk keeps its status, one that was down is up again. The result's
// Joined says what to begin with. ErrConflict means that a newer start of the
// node has joined already, if the incarnation is below the member's; else that
// the node's replica of the metadata shard is still leaving: the node keeps it
// and joins again later. That the node's earlier start does not run any more
// is for the caller to know.
func Join(m Member) []byte { return encode(command{Op: opJoin, Member: &m}) }

// SetStatus makes the command that moves a member on in its life. With an
// incarnation other than 0 it is ErrConflict when the member's is another.
func SetStatus(node sharding.NodeID, incarnation uint64, status MemberStatus) []byte {
	return encode(command{Op: opSetStatus, Status: &statusSet{Node: node, Incarnation: incarnation, Status: status}})
}

// Down makes the command of an operator that takes a node for dead. Hearing
// from it does not bring it back; a new start of it that joins does.
func Down(node sharding.NodeID) []byte {
	return encode(command{Op: opSetStatus, Status: &statusSet{Node: node, Status: StatusDown, Downed: true}})
}

// SetDraining makes the command of an operator that lets a member lead nothing
// and be given nothing, or that takes it back. With an incarnation other than 0
// it is ErrConflict when the member's is another: a new start ends a drain.
func SetDraining(node sharding.NodeID, incarnation uint64, draining bool) []byte {
	return encode(command{Op: opSetDraining, Status: &statusSet{Node: node, Incarnation: incarnation, Draining: draining}})
}

// RemoveMember makes the command that drops a member that is leaving or down
// and holds no replica any more. One that is gone already is accepted.
func RemoveMember(node sharding.NodeID) []byte {
	return encode(command{Op: opRemoveMember, Status: &statusSet{Node: node}})
}

// AddReplica makes the command that gives the nodes learners of the shard.
func AddReplica(shard sharding.ShardID, nodes ...sharding.NodeID) []byte {
	return ChangeReplicas(Change{Shard: shard, Add: nodes})
}

// Promote makes the command that makes learners voters.
func Promote(shard sharding.ShardID, ids ...sharding.ReplicaID) []byte {
	return ChangeReplicas(Change{Shard: shard, Promote: ids})
}

// Retire makes the command that lets replicas leave their group.
func Retire(shard sharding.ShardID, ids ...sharding.ReplicaID) []byte {
	return ChangeReplicas(Change{Shard: shard, Retire: ids})
}

// Forget makes the command that drops replicas that have left.
func Forget(shard sharding.ShardID, ids ...sharding.ReplicaID) []byte {
	return ChangeReplicas(Change{Shard: shard, Forget: ids})
}

// ChangeReplicas makes the command of a change. The result's Placements has
// the shard's placement after it.
func ChangeReplicas(c Change) []byte { return encode(command{Op: opChange, Change: &c}) }

// PutPolicy makes the command that sets the cluster's policy.
func PutPolicy(p Policy) []byte { return encode(command{Op: opPutPolicy, Policy: &p}) }

// ChangePolicy is PutPolicy for a cluster of sharding.VersionPolicy whose policy
// is still was, the zero Policy for none. Where it is another by now, and not p
// already, it is ErrConflict.
func ChangePolicy(was, p Policy) []byte {
	return encode(command{Op: opPutPolicy, Policy: &p, Was: &was})
}

// PutMember makes the command that admits a member or changes what is known of
// it. Nodes are admitted by Join.
func PutMember(m Member) []byte { return encode(command{Op: opPutMember, Member: &m}) }

// Place makes the command that gives each shard without a placement replicas
// on the named nodes, with fresh replica ids. A shard that has a placement
// keeps it. The result names the placements of all the shards asked for.
func Place(on ...PlaceOn) []byte { return encode(command{Op: opPlace, Place: on}) }

// PutModule makes the command that makes an uploaded module known. A module
// that is known already is left as it is, but that a signature, from
// sharding.VersionSignatures on, takes the place of the one that it has.
func PutModule(m Module) []byte { return encode(command{Op: opPutModule, Module: &m}) }

// RemoveModule makes the command that has a module forgotten, from
// sharding.VersionRemoveModule on. One that serves a type, or that a rollback may
// come back to, is ErrConflict; one that is not known is accepted.
func RemoveModule(digest Digest) []byte {
	return encode(command{Op: opRemoveModule, Digest: &digest})
}

// Bind makes the command that lets the module serve the entity type from a new
// revision on. Binding what is bound already keeps its revision. at is in unix
// nanoseconds.
func Bind(entityType string, digest Digest, at int64) []byte {
	return encode(command{Op: opBind, EntityType: entityType, Digest: &digest, At: at})
}

// BindLimited is Bind that sets the type's limits too; Bind leaves them as they
// are. Other limits are a new revision, and no step that Rollback goes back.
func BindLimited(entityType string, digest Digest, at int64, l Limits) []byte {
	return encode(command{Op: opBind, EntityType: entityType, Digest: &digest, At: at, Limits: &l})
}

// BindOver is Bind, or BindLimited with limits, from sharding.VersionBindOver on,
// while the type is served under the revision over, 0 for a type that nothing
// serves. What was decided by looking at that revision is so never bound in the
// place of another: it is ErrConflict, unless all is as the command asks.
func BindOver(entityType string, digest Digest, at int64, over uint64, l *Limits) []byte {
	return BindForced(entityType, digest, at, over, l, "")
}

// BindRestored is BindOver of what served a type in another cluster, from
// sharding.VersionSnapshotProofs on: what was proved there of the modules whose
// snapshots stand for truncated histories holds here, because the entities come
// with it.
func BindRestored(entityType string, digest Digest, at int64, over uint64, l *Limits, r Restored) []byte {
	return encode(command{Op: opBind, EntityType: entityType, Digest: &digest, At: at, Over: &overSet{Revision: over, Truncated: r.Truncated, Assumed: r.Assumed}, Limits: l})
}

// BindForced is BindOver that keeps who had the module bound although it does
// not fit what is stored; at most 512 bytes.
func BindForced(entityType string, digest Digest, at int64, over uint64, l *Limits, by string) []byte {
	return encode(command{Op: opBind, EntityType: entityType, Digest: &digest, At: at, Over: &overSet{Revision: over, ForcedBy: by}, Limits: l})
}

// Rollback makes the command that puts the previous module of the entity type
// back, under a new revision. It drops the current one from the history, so
// that a second rollback goes one further back.
func Rollback(entityType string, at int64) []byte {
	return encode(command{Op: opRollback, EntityType: entityType, At: at})
}

// RollbackOf is Rollback, from sharding.VersionRollbackOf on, while the type is
// served under the revision. Where it was taken back already, by this command
// or one like it, it changes nothing; where anything else happened it is
// ErrConflict.
func RollbackOf(entityType string, revision uint64, at int64) []byte {
	return encode(command{Op: opRollback, EntityType: entityType, At: at, Revision: revision})
}

// PutSetting makes the command that sets a setting.
func PutSetting(key string, value []byte) []byte {
	return encode(command{Op: opPutSetting, Setting: &settingSet{Key: key, Value: value}})
}

// DeleteSetting makes the command that removes a setting; removing one that
// does not exist is accepted.
func DeleteSetting(key string) []byte {
	return encode(command{Op: opPutSetting, Setting: &settingSet{Key: key, Delete: true}})
}

func encode(c command) []byte {
	c.Version = commandVersion
	return mustJSON(c)
}

// mustJSON encodes the package's own types, none of which can fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("metadata: encode %T: %v", v, err))
	}
	return b
}

// Check says whether a command may be proposed: nil, or ErrInvalid for one that
// replicas of this release would refuse in any state, or would stop at.
func Check(body []byte) error {
	c, err := decode(body)
	switch {
	case errors.Is(err, ErrUnsupported):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return err
	case c.Raise != nil && c.Raise.Level > sharding.MaxVersion:
		return fmt.Errorf("%w: level %d, this release speaks %v", ErrInvalid, c.Raise.Level, sharding.SupportedVersions)
	}
	return nil
}

// decode reads one command. What this version does not know is ErrUnsupported:
// to pass it over would be to apply another command than was committed, and to
// refuse it another than other replicas do.
func decode(body []byte) (command, error) {
	var c command
	if len(body) > MaxCommandBytes {
		return c, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrInvalid, len(body), MaxCommandBytes)
	}
	if err := strictJSON(body, &c); err != nil {
		return c, fmt.Errorf("%w: not a command of version %d", ErrUnsupported, commandVersion)
	}
	if c.Version != commandVersion {
		return c, fmt.Errorf("%w: a command of version %d", ErrUnsupported, c.Version)
	}
	if !slices.Contains(operations, c.Op) {
		return c, fmt.Errorf("%w: operation %.40q", ErrUnsupported, c.Op)
	}
	for _, m := range []*Member{c.Founder, c.Member} {
		if m != nil && m.Status != "" && !m.Status.known() {
			return c, fmt.Errorf("%w: member status %.40q", ErrUnsupported, string(m.Status))
		}
	}
	if c.Status != nil && c.Status.Status != "" && !c.Status.Status.known() {
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
		return fmt.Errorf("bytes after the value")
	}
	return nil
}
