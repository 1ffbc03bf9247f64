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

// Deps are what the server stands on. Every member is needed that does not say
// otherwise.
type Deps struct {
	Types   Types
	Modules Modules
	// Entity has what the EntityService is answered from.
	Entity entityapi.Options
	// Cluster has View and what else of the ClusterService the node can answer.
	Cluster clusterapi.Options
	// Lines are of the node's guests; nil: such calls are unimplemented.
	Lines *modules.GuestLines
	// Guests measures the guests of this node; nil: such calls are unimplemented.
	Guests profiling.Sampler
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

// encodings are what parts of the server need to know of types.
type encodings struct{ types Types }

// Known fails if no module serves the type.
func (e encodings) Known(ctx context.Context, entityType string) error {
	_, err := e.types.Lookup(ctx, entityType)
	return err
}

// Encoding implements command.Types.
func (e encodings) Encoding(ctx context.Context, entityType string) (request.Encoding, error) {
	t, err := e.types.Lookup(ctx, entityType)
	return t.Encoding, err
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
