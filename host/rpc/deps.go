package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hostd/hostd/abi/schema"
	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/guestlines"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/codec"
	"github.com/hostd/hostd/host/rpc/command"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/pending"
	"github.com/hostd/hostd/host/rpc/profiling"
	"github.com/hostd/hostd/host/rpc/records"
	"github.com/hostd/hostd/host/rpc/roles"
	"github.com/hostd/hostd/host/rpc/rollback"
	"github.com/hostd/hostd/host/rpc/rollout"
	"github.com/hostd/hostd/host/rpc/subscription"
	"github.com/hostd/hostd/host/rpc/verification"
	"github.com/hostd/hostd/host/rpc/verified"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Deps are what the server stands on. Every member is needed, but for
// ClusterAdmin, Levels, Founder, Policies, Settings and Roles: without them
// their calls are unimplemented.
type Deps struct {
	Runtime      command.Runtime
	Types        Types
	Histories    subscription.Histories
	Entities     Entities
	Modules      Modules
	Cluster      Cluster
	ClusterAdmin ClusterAdmin
	Levels       Levels
	Founder      Founder
	Policies     Policies
	Settings     Settings
	Roles        roles.Store
	// States folds and drops states; nil: such calls are unimplemented.
	States States
	// Records are what entities went through; nil: such calls are unimplemented.
	Records records.Histories
	// Pending are timers and sends; nil: such calls are unimplemented.
	Pending pending.Source
	// DeadLetters are those of the shards led here; nil: such calls are unimplemented.
	DeadLetters DeadLetters
	// Readers read whole shards, and upcast events.
	subscription.Readers
	// Lines are of the node's guests; nil: such calls are unimplemented.
	Lines *guestlines.Lines
	// ProfileGuests measures the guests of a type on this node; nil: such calls
	// are unimplemented.
	ProfileGuests func(ctx context.Context, entityType string, long time.Duration) ([]profiling.Stack, error)
	// Load tells what the node does; nil: such calls are unimplemented.
	Load Load
	// Transfers exports and imports; nil: such calls are unimplemented.
	Transfers Transfers
	// Verifications replay histories; nil: such calls are unimplemented.
	Verifications verification.Verifications
	// Fits compare modules with what is stored; nil: such calls are unimplemented,
	// and whatever is activated fits.
	Fits Fits
	// Rollouts are those of modules; nil: such calls are unimplemented.
	Rollouts rollout.Rollouts
	// Nodes finds the leaders of shards; nil where this node leads them all.
	Nodes leaderproxy.Nodes
}

// Type is what the server needs to know of an entity type.
type Type struct {
	Encoding codec.Encoding
	Module   journal.Digest // that serves the type
	Revision uint64         // of the binding
	Limits   Limits         // of the type's own
	ForcedBy string         // who bound it although it did not fit what was stored
	// Sends and AcceptsFrom are the types that its entities may send to, and take
	// messages from, as abi.MatchesType reads them.
	Sends, AcceptsFrom []string
	// IsForeign reports that another type is another owner's, so that the type
	// takes its messages only if AcceptsFrom names it; nil for none.
	IsForeign func(entityType string) bool
}

// Limits are what a type is held to below what the nodes allow; 0 is what they
// allow.
type Limits struct {
	CommandFuel, QueryFuel            int64 // units of fuel
	MaxEvents, EventBytes, ReplyBytes int64 // of a command, of an event, of a reply
	MemoryBytes, TypeMemoryBytes      int64 // of an instance, of all on a node
	RatePerSecond                     int64 // commands on a node
	FuelPerSecond, BytesPerSecond     int64 // of commands on a node: units of fuel, bytes of records
}

// Types finds the module that serves an entity type. It is asked for every
// command, and must not block but to be sure that a type is unknown.
type Types interface {
	// Lookup fails with request.ErrUnknownType only when the node knows that
	// no module serves the type, and with request.ErrNotReady until then; with
	// request.ErrModuleNotLoaded when one does and is not at hand.
	Lookup(ctx context.Context, entityType string) (Type, error)
	// Names lists the types that modules serve, in any order.
	Names() []string
}

// nearTypes are types of which one that is not there is refused with the name
// that was probably meant, of those that the caller's roles let it look at.
type nearTypes struct {
	Types
	roles *authorize.Authorizer // nil: everybody may do everything
}

func (t nearTypes) Lookup(ctx context.Context, entityType string) (Type, error) {
	found, err := t.Types.Lookup(ctx, entityType)
	if !errors.Is(err, request.ErrUnknownType) {
		return found, err
	}
	names := slices.DeleteFunc(t.Names(), func(name string) bool { return !t.shown(ctx, name) })
	if nearest, near := schema.Nearest(entityType, slices.Values(names)); near {
		err = fmt.Errorf("%w; did you mean %q?", err, nearest)
	}
	return found, err
}

func (t nearTypes) shown(ctx context.Context, entityType string) bool {
	return t.roles == nil || t.roles.Explain(ctx, authz.Call{Verb: authv1.Verb_READ, Types: authz.One, Type: entityType, IDs: authz.Beginning}).Allowed
}

// known fails where no module serves a type.
func (d Deps) known(ctx context.Context, entityType string) error {
	_, err := d.Types.Lookup(ctx, entityType)
	return err
}

// encodings are what parts of the server need to know of types.
type encodings struct{ types Types }

// Encoding implements command.Types.
func (e encodings) Encoding(ctx context.Context, entityType string) (codec.Encoding, error) {
	t, err := e.types.Lookup(ctx, entityType)
	return t.Encoding, err
}

// Entities describes entities.
type Entities interface {
	// Get describes one entity; of an id without events it says Status
	// "absent" and does not fail.
	Get(ctx context.Context, id sharding.EntityID) (EntityInfo, error)
	// List returns up to q.Limit entities of one shard in the order of their
	// ids, after q.After. It may return less than there are, and where to go on.
	List(ctx context.Context, shard sharding.ShardID, q EntityQuery) (EntityPage, error)
	// Shards is the number of data shards; they are numbered from 1.
	Shards() uint32
	// ShardOf returns the shard of an entity; of a type that this node does not
	// know it is the metadata shard.
	ShardOf(id sharding.EntityID) sharding.ShardID
	// ShardOfPrefix returns the one shard of all entities of the type whose ids
	// begin so, where that is one.
	ShardOfPrefix(entityType, idPrefix string) (sharding.ShardID, bool)
}

// EntityInfo describes an entity.
type EntityInfo struct {
	Status           string // "absent", "active", "deleted" or "parked"
	Sequence         journal.Sequence
	SnapshotSequence journal.Sequence
	Shard            sharding.ShardID
	Node             sharding.NodeID // that leads the shard; empty while none is known
	Module           journal.Digest  // that serves the type; zero when none does
	Resident         bool
	StateBytes       uint64
	LastError        string
	Faults           int       // in a row
	ParkedUntil      time.Time // zero unless parked
	Fuel             uint64    // of the commands of its last 65,536 events
	Timers           []journal.Timer
	PendingMessages  uint64        // on their way
	Actions          []AdminAction // of operators, the newest first
}

// AdminAction is what an operator did to an entity beside its commands.
type AdminAction struct {
	Kind       string // ActionDelete or ActionSkipTimer
	Timer      string // that was skipped
	Command    journal.CommandID
	RecordedAt int64            // unix nanoseconds of the shard's clock
	Sequence   journal.Sequence // of the entity after it
}

// Kinds of actions.
const (
	ActionDelete    = "delete"
	ActionSkipTimer = "skip-timer"
)

// EntityQuery selects entities of one shard.
type EntityQuery struct {
	Type         string
	IDPrefix     string
	ResidentOnly bool
	// Status: only entities that are "active", "deleted", "parked", "resident",
	// "passivated" or "unproved"; empty is all but those that are deleted.
	Status string
	After  string // only ids greater than this
	Limit  int    // at least 1
}

// EntityPage is a part of a listing.
type EntityPage struct {
	Entities []EntitySummary
	Next     string // the id after which the listing goes on; empty at its end
}

// EntitySummary is one line of a listing.
type EntitySummary struct {
	ID       string
	Sequence journal.Sequence
	Status   string // "active", "deleted" or "parked"
	Resident bool
	Takeover *journal.Takeover // of an "unproved" one
}

// Modules stores modules and binds entity types to them.
type Modules interface {
	// Upload checks and stores a module; the same bytes twice are the same
	// module. It keeps the bytes. A module that cannot be used is an
	// *request.InvalidModuleError.
	Upload(ctx context.Context, u Upload) (Module, error)
	// List returns the stored modules, newest first.
	List(ctx context.Context) ([]Module, error)
	// Get describes one, or fails with request.ErrUnknownModule.
	Get(ctx context.Context, digest journal.Digest) (Module, error)
	// Download writes its bytes to w in pieces of at most 64 KiB, or fails with
	// request.ErrUnknownModule before the first. After another error w has a part
	// of them.
	Download(ctx context.Context, digest journal.Digest, w io.Writer) error
	// Activate binds the type to the module and returns once every node that is
	// up serves it. A module without the type is an
	// *request.InvalidModuleError, one that does not fit what is stored a
	// *RefusedError.
	Activate(ctx context.Context, a Activation) (revision uint64, err error)
	// Rollback takes a revision of the type's binding back, the one that serves
	// if it is 0, and returns once every node that is up serves the module before
	// it. It is a *RefusedError where there is none, where another revision
	// serves, and where that module does not fit what is stored; one that was
	// taken back already is no error.
	Rollback(ctx context.Context, t TakeBack) (Rollback, error)
	// Changes returns the last changes of what serves a type, oldest first, by all
	// that was decided before. It fails with request.ErrUnknownType.
	Changes(ctx context.Context, entityType string) ([]BindingChange, error)
	// Owner is the subject that a type belongs to, empty for nobody, by all that
	// was decided before. It fails with request.ErrUnknownType where nothing
	// serves the type.
	Owner(ctx context.Context, entityType string) (string, error)
	// Remove has a module forgotten, once allow has nothing against it for the
	// types that it has. It is a *RefusedError where something needs the module.
	Remove(ctx context.Context, digest journal.Digest, allow func(ctx context.Context, entityTypes []string) error) error
	// Quotas are those of uploads; by is whose uploads are counted.
	Quotas(by string) ModuleQuotas
	// Verified returns what a type asks for before the module serves it, and what
	// came of verifying it, by all that was decided before. It fails with
	// request.ErrUnknownType where nothing serves the type.
	Verified(ctx context.Context, entityType string, digest journal.Digest) (verified.Kept, error)
	// KeepVerified keeps what came of a verification. It is a *RefusedError where
	// the type is served under another revision, or the cluster keeps none yet.
	KeepVerified(ctx context.Context, entityType string, r verified.Result) error
	// SetOwner gives a type another owner, or none, once allow has nothing
	// against it.
	SetOwner(ctx context.Context, entityType, owner string, allow func(ctx context.Context, was string) error) error
}

// ModuleQuotas are what uploads are held to.
type ModuleQuotas struct {
	Used, Most ModuleAmounts
	Retention  time.Duration // of what nothing needs; 0 is for ever
}

// ModuleAmounts are of the modules of the cluster.
type ModuleAmounts struct {
	Modules int
	Bytes   int64
	OfOne   int // of one uploader
	// BytesOfOne are those of the modules of one uploader.
	BytesOfOne int64
}

// Stored tells whether there are entities of a type, those that are deleted
// aside, once the logs of all shards have the fence, a revision of the bindings.
type Stored func(ctx context.Context, fence uint64) (bool, error)

// Activation has a module serve an entity type.
type Activation struct {
	EntityType string
	Digest     journal.Digest
	Limits     *Limits // nil: as they are
	By         string  // who has it done, KIND:NAME
	ForcedBy   string  // who has it done although the module does not fit, or empty
	// Stored is asked where the module keeps states in another way than the one
	// that serves; nil: that is not looked at.
	Stored Stored
	Allow  Allow
	Truncated
	// Restored are modules of which another cluster has proved that the module
	// reads their snapshots, where the entities come from there.
	Restored meta.Restored
}

// Truncated says what a module that takes the place of another one does on
// entities whose first events are gone. The zero value does not look at them:
// the module loads none of the snapshots that are left of them then.
type Truncated struct {
	Prove  bool // compare them before and while the type is held
	Accept bool // another state than before is meant
	Force  bool // the module serves all the same, and loads none of these snapshots
	// Remark gets what a caller is told of it; nil: nobody is.
	Remark func(string)
}

// TakeBack has the module serve an entity type that did before.
type TakeBack struct {
	EntityType string
	Revision   uint64                         // that is taken back; 0: the one that serves
	By         string                         // as of an Activation
	Stored     func(entityType string) Stored // as of an Activation
	Allow      Allow
	// Check is asked for each type that goes back, once every node has the module:
	// it refuses, or says who forces it. Where it does neither it is asked again
	// while the type's entities leave no records. Nil: nothing is looked at.
	Check func(ctx context.Context, t rollback.Type) (forcedBy string, err error)
	Truncated
}

// Upload is a module on its way into the cluster.
type Upload struct {
	Wasm      []byte
	Signature []byte // of the module; empty is none
	By        string // the subject that uploads it; empty: nobody is asked
	// Resign says whether the uploader may put its signature in the place of
	// another one, of a module that describes these types; nil allows it.
	Resign func(ctx context.Context, entityTypes []string) error
}

// Rollback is what a rollback led to.
type Rollback struct {
	Digest   journal.Digest // of the module that serves
	Revision uint64         // it serves under
	Types    []string       // all that went back, by name
}

// BindingChange is one change of what serves an entity type.
type BindingChange struct {
	Revision uint64
	At       time.Time
	Kind     string // as meta.ChangeKind
	Digest   journal.Digest
	By       string // empty where that is not known
	Forced   bool
	TookBack uint64
	meta.Part
}

// Module describes a stored module.
type Module struct {
	Digest      journal.Digest
	Name        string
	Version     string
	SizeBytes   int64
	UploadedAt  time.Time
	EntityTypes []string
	Manifest    json.RawMessage   // as the module gave it
	Owners      map[string]string // subjects, by those types of it that are served
	// Verified is what came of verifying it, by those types of it that are served.
	Verified map[string]verified.Result
	Parts    []rollout.Part
	// SignedBy is the name of the key that has signed it, or SignatureFault why
	// its signature does not count here.
	SignedBy, SignatureFault string
	// UnusedSince is zero where something needs it, or that is not known yet.
	UnusedSince time.Time
}

// Rebinding is a module that is to serve an entity type.
type Rebinding struct {
	EntityType string
	Owner      string   // the subject that the type belongs to; empty for nobody
	Types      []string // all that the module serves
}

// Allow says whether that may be, and to whom the type belongs from then on.
// Nil allows it to everybody, and leaves the owner.
type Allow func(ctx context.Context, r Rebinding) (owner string, err error)
