package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hostd/hostd/abi/schema"
	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/profiling"
	"github.com/hostd/hostd/host/rpc/rollout"
	"github.com/hostd/hostd/host/rpc/verification"
	"github.com/hostd/hostd/journal"
)

// Deps are the services that the server calls. Every member is required unless
// its comment says otherwise.
type Deps struct {
	Types   Types
	Modules Modules
	// Entity configures the EntityService.
	Entity entityapi.Options
	// Cluster has the View and the other parts of the ClusterService that this
	// node can answer.
	Cluster clusterapi.Options
	// Lines has the log lines of the node's guests; if it is nil, the calls that
	// need it are unimplemented.
	Lines *modules.GuestLines
	// Guests profiles the guests of this node; if it is nil, the calls that need
	// it are unimplemented.
	Guests profiling.Sampler
	// Transfers exports and imports entities; if it is nil, the calls that need
	// it are unimplemented.
	Transfers Transfers
	// Verifications replay histories; if it is nil, the calls that need it are
	// unimplemented.
	Verifications verification.Verifications
	// Fits runs the compatibility check of modules against stored entities. If
	// it is nil, the calls that need it are unimplemented, and activations are
	// not checked.
	Fits Fits
	// Rollouts manages gradual activations of modules; if it is nil, the calls
	// that need it are unimplemented.
	Rollouts rollout.Rollouts
	// Nodes finds the leaders of shards; nil if this node leads all of them.
	Nodes leaderproxy.Nodes
}

// Types finds the module that serves an entity type. The server asks for every
// command, so a lookup must not block, except to make sure that a type is
// unknown.
type Types interface {
	// Lookup fails with request.ErrUnknownType only if the node is sure that no
	// module serves the type, and with request.ErrNotReady until it is sure. It
	// fails with request.ErrModuleNotLoaded if a module serves the type but is
	// not available on this node.
	Lookup(ctx context.Context, entityType string) (modules.Type, error)
	// Names returns the types that modules serve, in any order.
	Names() []string
}

// nearTypes is a Types that suggests a similar name if a type is unknown ("did
// you mean"). It suggests only types that the caller's roles allow it to read,
// so that the error does not reveal other types.
type nearTypes struct {
	Types
	roles *authorize.Authorizer // nil: every caller may do everything
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

// encodings is the part of Types that commands and listings need.
type encodings struct{ types Types }

// Known returns an error if no module serves the type.
func (e encodings) Known(ctx context.Context, entityType string) error {
	_, err := e.types.Lookup(ctx, entityType)
	return err
}

// Encoding implements command.Types.
func (e encodings) Encoding(ctx context.Context, entityType string) (request.Encoding, error) {
	t, err := e.types.Lookup(ctx, entityType)
	return t.Encoding, err
}

// Modules stores modules and activates them for entity types; see
// modules.Service.
type Modules interface {
	Upload(ctx context.Context, u modules.Upload) (modules.Module, error)
	List(ctx context.Context) ([]modules.Module, error)
	Get(ctx context.Context, digest journal.Digest) (modules.Module, error)
	Download(ctx context.Context, digest journal.Digest, w io.Writer) error
	Activate(ctx context.Context, a modules.Activation) (modules.Activated, error)
	Rollback(ctx context.Context, t modules.TakeBack) (modules.Rollback, error)
	Changes(ctx context.Context, entityType string) ([]modules.ActivationChange, error)
	Owner(ctx context.Context, entityType string) (string, error)
	Remove(ctx context.Context, digest journal.Digest, allow func(ctx context.Context, entityTypes []string) error) error
	Quotas(by string) modules.Quotas
	Verification(ctx context.Context, entityType string, digest journal.Digest) (modules.KeptVerification, error)
	KeepVerified(ctx context.Context, entityType string, r modules.VerifyResult) error
	SetOwner(ctx context.Context, entityType, owner string, allow func(ctx context.Context, was string) error) error
}
