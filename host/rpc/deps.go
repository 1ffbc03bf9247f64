package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hostd/hostd/abi/schema"
	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/command"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/pending"
	"github.com/hostd/hostd/host/rpc/records"
	"github.com/hostd/hostd/host/rpc/roles"
	"github.com/hostd/hostd/host/rpc/rollout"
	"github.com/hostd/hostd/host/rpc/subscription"
	"github.com/hostd/hostd/host/rpc/verification"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
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
	Lines *modules.GuestLines
	// ProfileGuests measures the guests of a type on this node; nil: such calls
	// are unimplemented.
	ProfileGuests func(ctx context.Context, entityType string, long time.Duration) ([]modules.GuestStack, error)
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

// Types finds the module that serves an entity type. It is asked for every
// command, and must not block but to be sure that a type is unknown.
type Types interface {
	// Lookup fails with request.ErrUnknownType only when the node knows that
	// no module serves the type, and with request.ErrNotReady until then; with
	// request.ErrModuleNotLoaded when one does and is not at hand.
	Lookup(ctx context.Context, entityType string) (modules.Type, error)
	// Names lists the types that modules serve, in any order.
	Names() []string
}

// nearTypes are types of which one that is not there is refused with the name
// that was probably meant, of those that the caller's roles let it look at.
type nearTypes struct {
	Types
	roles *authorize.Authorizer // nil: everybody may do everything
}

func (t nearTypes) Lookup(ctx context.Context, entityType string) (modules.Type, error) {
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
func (e encodings) Encoding(ctx context.Context, entityType string) (request.Encoding, error) {
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

// Modules stores modules and binds entity types to them; see modules.Service.
type Modules interface {
	Upload(ctx context.Context, u modules.Upload) (modules.Module, error)
	List(ctx context.Context) ([]modules.Module, error)
	Get(ctx context.Context, digest journal.Digest) (modules.Module, error)
	Download(ctx context.Context, digest journal.Digest, w io.Writer) error
	Activate(ctx context.Context, a modules.Activation) (modules.Activated, error)
	Rollback(ctx context.Context, t modules.TakeBack) (modules.Rollback, error)
	Changes(ctx context.Context, entityType string) ([]modules.BindingChange, error)
	Owner(ctx context.Context, entityType string) (string, error)
	Remove(ctx context.Context, digest journal.Digest, allow func(ctx context.Context, entityTypes []string) error) error
	Quotas(by string) modules.Quotas
	Verified(ctx context.Context, entityType string, digest journal.Digest) (modules.KeptVerification, error)
	KeepVerified(ctx context.Context, entityType string, r modules.VerifyResult) error
	SetOwner(ctx context.Context, entityType, owner string, allow func(ctx context.Context, was string) error) error
}
