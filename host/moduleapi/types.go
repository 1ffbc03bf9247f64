package moduleapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hostd/hostd/abi/schema"
	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// Types finds the module that serves an entity type. The server calls it for
// every command, so a lookup must not block, except to make sure that a type is
// unknown.
type Types interface {
	// Lookup fails with request.ErrUnknownType only if the node is sure that no
	// module serves the type; until then it fails with request.ErrNotReady. It
	// fails with request.ErrModuleNotLoaded if a module serves the type but is
	// not available on this node.
	Lookup(ctx context.Context, entityType string) (modules.Type, error)
	// Names returns the types that modules serve, in any order.
	Names() []string
}

// NearTypes is a Types that suggests a similar name if a type is unknown ("did
// you mean"). It suggests only types that the caller's roles allow it to read,
// so that the error does not reveal other types.
type NearTypes struct {
	Types
	Auth *authorize.Authorizer // if nil, every caller may do everything
}

// Lookup implements Types.
func (t NearTypes) Lookup(ctx context.Context, entityType string) (modules.Type, error) {
	found, err := t.Types.Lookup(ctx, entityType)
	if !errors.Is(err, request.ErrUnknownType) {
		return found, err
	}
	names := slices.DeleteFunc(t.Names(), func(name string) bool { return !t.isVisible(ctx, name) })
	if nearest, near := schema.Nearest(entityType, slices.Values(names)); near {
		err = fmt.Errorf("%w; did you mean %q?", err, nearest)
	}
	return found, err
}

func (t NearTypes) isVisible(ctx context.Context, entityType string) bool {
	return t.Auth == nil || t.Auth.Explain(ctx, authz.Call{Verb: authv1.Verb_READ, Types: authz.One, Type: entityType, IDs: authz.Beginning}).Allowed
}

// Encodings is the part of Types that commands and listings need.
type Encodings struct{ Types Types }

// CheckType returns an error if no module serves the type.
func (e Encodings) CheckType(ctx context.Context, entityType string) error {
	_, err := e.Types.Lookup(ctx, entityType)
	return err
}

// Encoding implements entityapi.Types.
func (e Encodings) Encoding(ctx context.Context, entityType string) (request.Encoding, error) {
	t, err := e.Types.Lookup(ctx, entityType)
	return t.Encoding, err
}

// Modules stores modules and activates them for entity types; see
// modules.Service.
type Modules interface {
	library
	activations
}

// library stores modules.
type library interface {
	Upload(ctx context.Context, u modules.Upload) (modules.Module, error)
	List(ctx context.Context) ([]modules.Module, error)
	Get(ctx context.Context, digest journal.Digest) (modules.Module, error)
	Download(ctx context.Context, digest journal.Digest, w io.Writer) error
	Remove(ctx context.Context, digest journal.Digest, allow func(ctx context.Context, entityTypes []string) error) error
	Quotas(by string) modules.Quotas
}

// activations makes modules serve entity types, and knows the owners of the
// types and the results of verifications.
type activations interface {
	Activate(ctx context.Context, a modules.Activation) (modules.Activated, error)
	Rollback(ctx context.Context, t modules.TakeBack) (modules.Rollback, error)
	Changes(ctx context.Context, entityType string) ([]modules.ActivationChange, error)
	Owner(ctx context.Context, entityType string) (string, error)
	SetOwner(ctx context.Context, entityType, owner string, allow func(ctx context.Context, was string) error) error
	Verification(ctx context.Context, entityType string, digest journal.Digest) (modules.StoredVerification, error)
	KeepVerified(ctx context.Context, entityType string, r modules.VerifyResult) error
}
