package modules

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// Type describes an entity type for the server.
type Type struct {
	Encoding request.Encoding
	Module   journal.Digest // the serving module
	Revision uint64         // revision of the activation
	Limits   Limits         // limits of the type
	ForcedBy string         // principal that forced the activation although the module is incompatible with stored entities; empty if it was not forced
	// Sends and AcceptsFrom are the types to which its entities may send and from
	// which they accept messages, as abi.MatchesType interprets them.
	Sends, AcceptsFrom []string
	// Owners knows whether another type has a different owner. Messages of a
	// type with a different owner are accepted only if AcceptsFrom names that
	// type. nil means that no type has a different owner.
	Owners interface{ IsForeign(entityType string) bool }
}

// Limits bound a type below the limits of the nodes. 0 selects the node's
// limit.
type Limits struct {
	CommandFuel, QueryFuel            int64 // fuel units per call
	MaxEvents, EventBytes, ReplyBytes int64 // events per command, bytes per event, bytes per reply
	MemoryBytes, TypeMemoryBytes      int64 // bytes of one instance, of all instances on a node
	RatePerSecond                     int64 // commands per second on a node
	FuelPerSecond, BytesPerSecond     int64 // on a node: units of fuel per second, bytes of records per second
}

// Quotas limit uploads.
type Quotas struct {
	Used, Limit Amounts
	Retention   time.Duration // how long unneeded modules are kept; 0 means forever
}

// Amounts count modules of the cluster.
type Amounts struct {
	Modules int
	Bytes   int64
	OfOne   int // modules of one uploader
	// BytesOfOne is the size of one uploader's modules.
	BytesOfOne int64
}

// Upload is a module to be uploaded.
type Upload struct {
	Wasm      []byte
	Signature []byte // signature of the module; may be empty
	By        string // subject that uploads; empty if the node does not authenticate
	// Resign checks whether the uploader may replace the existing signature of
	// a module, which serves these types. nil permits it.
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
	Manifest    json.RawMessage   // manifest exactly as the module returns it
	Owners      map[string]string // owners of its served types
	// Verified holds the verification results, by served type.
	Verified map[string]VerifyResult
	Parts    []ServedPart
	// SignedBy is the name of the key that signed the module. If the signature is
	// not trusted here, SignatureFault is the reason instead.
	SignedBy, SignatureFault string
	// UnusedSince is zero if the module is needed, or if that is not known yet.
	UnusedSince time.Time
}

// ServedPart describes a module's role for an entity type that another module
// serves: either it is rolled out to a part of the type's entities, or it
// decides a share of the commands as a shadow.
type ServedPart struct {
	EntityType string
	Rollout    *meta.Rollout // nil if the module is a shadow
	Share      uint32        // share of the commands that the module decides as a shadow
}

// partsOf returns the parts that a module serves of the given entity types, in
// their order.
func partsOf(view *meta.View, digest meta.Digest, entityTypes []string) (out []ServedPart) {
	for _, name := range entityTypes {
		b, _ := view.Activation(name)
		if r := b.Rollout; r != nil && r.Digest == digest {
			out = append(out, ServedPart{EntityType: name, Rollout: r})
		}
		if s, ok := meta.ShadowOf(view, name); ok && s.Digest == digest && b.Digest != digest {
			out = append(out, ServedPart{EntityType: name, Share: s.Share})
		}
	}
	return out
}
