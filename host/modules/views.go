package modules

import (
	"connectrpc.com/connect"
	"context"
	"encoding/json"
	"fmt"
	"github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/canary"
	"github.com/hostd/hostd/host/modules/verified"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/shadow"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"strings"
	"time"
)

// Type is what the server needs to know of an entity type.
type Type struct {
	Encoding request.Encoding
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

// Quotas are what uploads are held to.
type Quotas struct {
	Used, Most Amounts
	Retention  time.Duration // of what nothing needs; 0 is for ever
}

// Amounts are of the modules of the cluster.
type Amounts struct {
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

// Activated is what an activation led to.
type Activated struct {
	Revision  uint64
	Verifying bool // the module serves once it is compared with truncated histories
}

// Truncated says what a module that takes the place of another one does on
// entities whose first events are gone. The zero value does not look at them:
// the module loads none of the snapshots that are left of them then.
type Truncated struct {
	Prove  bool // compare them before and while the type is held
	Later  bool // of an activation: if there are such entities, the cluster proves the module after the call
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
	Check func(ctx context.Context, t RollbackType) (forcedBy string, err error)
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
	Parts    []ServedPart
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

// FitQuery says what to compare with which module.
type FitQuery struct {
	Shard      sharding.ShardID
	EntityType string
	Digest     journal.Digest
	Sample     int                 // entities that are replayed at most
	Draw       func(below int) int // a random number
	Budget     time.Duration       // for the events, and for the sample
	// PresenceOnly asks for Fit.Present alone; Digest is not looked at.
	PresenceOnly bool
	// WrittenNotBy: all entities whose newest event is by none of these modules,
	// in the place of a sample.
	WrittenNotBy []journal.Digest
	// First is the part of the type that others than these have served at first,
	// and Within the one that they serve by now; zero where it was all.
	First, Within meta.Part
	// Truncated: only entities whose first events are gone and of which the module
	// has no snapshot of its own, all of them: what it makes of the one that is
	// left is compared with what the module makes that serves the entity. With
	// WrittenNotBy they are left out in the place of that. Snapshots: it is to
	// load all snapshots of that one, so entities with all their events are
	// compared too. Within is the part of a rollout that goes back.
	Truncated, Snapshots bool
	// Of Truncated: Paced holds the replay back, as a verification is, and looks at
	// a shard until all of it was compared or something does not fit. Accept has
	// entities of which the module makes another state compared once. With
	// PresenceOnly it is asked whether there is one such entity.
	Paced, Accept bool
	// Fence: once the log of the shard has this revision of the bindings.
	Fence uint64
}

// Fit is what does not fit.
type Fit struct {
	Missing  []MissingEvents // by type
	Faults   []FitFault
	Failing  int  // entities of faults, also of those beyond them
	Entities int  // that were replayed
	Complete bool // all stored events were looked at
	Present  bool // there are entities, those that are deleted aside
	// Of FitQuery.Truncated: entities of which the module makes another state, the
	// first of them, the modules whose snapshots stand for those that were looked
	// at, and how many the module that serves cannot read either.
	Differing   int
	Differences []FitFault
	SnapshotsOf []journal.Digest
	Unreadable  int
}

// MissingEvents are stored events of a type that the manifest does not list.
type MissingEvents struct {
	EventType string
	Count     uint64
}

// FitFault is an entity that the module fails on.
type FitFault struct {
	EntityID  string
	At        journal.Sequence
	EventType string
	Message   string
}

// MaxFitFaults bounds the faults that an answer has, and MaxFitMissing the types of
// events that it names.
const MaxFitFaults, MaxFitMissing = 100, 1024

// GuestStack is what guests have spent in one function, called by certain others.
type GuestStack struct {
	Functions []string // the one that spends first
	Samples   int64
	Fuel      int64
}

// ErrProfiling: what is asked for is being measured for somebody else.
var ErrProfiling = status.New(connect.CodeResourceExhausted, "as many profiles of that are being taken as may be: wait until one has ended")

// RollbackType is one that is to be served by a module that did before.
type RollbackType struct {
	Name   string
	Digest journal.Digest // of the module
	// Before are the modules whose events it knows: itself, and those that served
	// before it and not since.
	Before []journal.Digest
	// First is the part of it that the module of now has served at first; zero is
	// all.
	First meta.Part
	// Fence is the revision since when its entities leave no records, once a look
	// has passed it while they did; 0 before.
	Fence uint64
}

// ServedPart is what a module does of an entity type that another one serves: it is
// on its way to serve it, or decides a share of its commands too.
type ServedPart struct {
	EntityType string
	Rollout    *meta.Rollout // nil: it decides
	Share      uint32        // of the commands that it decides
}

// PartsOf are those of a module that has the entity types, in their order.
func PartsOf(view *meta.View, digest meta.Digest, entityTypes []string) (out []ServedPart) {
	for _, name := range entityTypes {
		b, _ := view.Binding(name)
		if r := b.Rollout; r != nil && r.Digest == digest {
			out = append(out, ServedPart{EntityType: name, Rollout: r})
		}
		if s, ok := meta.ShadowOf(view, name); ok && s.Digest == digest && b.Digest != digest {
			out = append(out, ServedPart{EntityType: name, Share: s.Share})
		}
	}
	return out
}

// RolloutPlan is which part a module serves, and the larger ones that follow.
type RolloutPlan struct {
	meta.Part
	Steps []uint32      // shares of sharding.Buckets, rising
	Pause time.Duration // before each of them; 0 without any
	Rules string        // see canary.Parse
}

// RolloutBegin is a module that is to serve a part of a type.
type RolloutBegin struct {
	EntityType string
	Digest     journal.Digest
	RolloutPlan
	By string // who has it done, KIND:NAME
	// Check looks at how the module fits a type, once all that go together are
	// known; it refuses, or says who forces it. Nil: nothing is looked at.
	Check func(ctx context.Context, entityType string) (forcedBy string, err error)
	Allow AllowRollout
	Truncated
}

// AllowRollout says whether the module, which has these types, may serve this one, and
// to whom the type belongs from then on. Nil allows it to everybody, and leaves
// the owner.
type AllowRollout func(ctx context.Context, entityType, owner string, types []string) (string, error)

// RolloutOrder is what is to become of a rollout.
type RolloutOrder struct {
	EntityType string
	Action     modulev1.ChangeRolloutRequest_Action
	Force      bool
	By         string
	Allow      AllowRollout
}

// RolloutState is that of a type.
type RolloutState struct {
	EntityType string
	Older      journal.Digest // what serves the other entities
	Revision   uint64         // of the binding
	// Rollout is nil where one module serves all.
	*meta.Rollout
	Counts *RolloutCounts // nil where they are not known
	// Aborted is how the last rollout ended, where that was what happened last.
	Aborted *meta.BindingChange
	Shadow  *ShadowReport // nil where no other module decides too
}

// ShadowReport is of a module that decides a share of a type's commands too, and how
// that compares with what came of them. Silent nodes did not say what they
// compared.
type ShadowReport struct {
	shadow.Wish
	shadow.Sum
	Silent int
}

// RolloutCounts are what the two modules of a rollout did since it began. Silent nodes
// did not say what they counted.
type RolloutCounts struct {
	Older, Newer canary.Counts
	Silent       int
}

// refusedRollout says why a rollout cannot be as things are.
func refusedRollout(format string, args ...any) error {
	return &status.RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// ErrRolloutGoesOn: the call's time was over before the entities had gone back.
var ErrRolloutGoesOn = status.New(connect.CodeDeadlineExceeded, "the entities are on their way back to the older module, and that goes on; 'hostd module rollout TYPE' shows it")

// TypeSetting returns what a setting's key is about: entity.TYPE.NAME.
func TypeSetting(key string) (entityType, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, settingPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
}
