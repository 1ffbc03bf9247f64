package modules

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
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

// Upload is a module on its way into the cluster.
type Upload struct {
	Wasm      []byte
	Signature []byte // of the module; empty is none
	By        string // the subject that uploads it; empty: nobody is asked
	// Resign says whether the uploader may put its signature in the place of
	// another one, of a module that describes these types; nil allows it.
	Resign func(ctx context.Context, entityTypes []string) error
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
	Verified map[string]VerifyResult
	Parts    []ServedPart
	// SignedBy is the name of the key that has signed it, or SignatureFault why
	// its signature does not count here.
	SignedBy, SignatureFault string
	// UnusedSince is zero where something needs it, or that is not known yet.
	UnusedSince time.Time
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
