package rpc

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/status"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// Rebinding is a module that is to serve an entity type.
type Rebinding struct {
	EntityType string
	Owner      string   // the subject that the type belongs to; empty for nobody
	Types      []string // all that the module serves
}

// Allow says whether that may be, and to whom the type belongs from then on.
// Nil allows it to everybody, and leaves the owner.
type Allow func(ctx context.Context, r Rebinding) (owner string, err error)

// settingPrefix begins the keys of settings about entity types.
const settingPrefix = "entity."

// TypeSetting returns what a setting's key is about: entity.TYPE.NAME.
func TypeSetting(key string) (entityType, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, settingPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
}

// owners hold changes of entity types to those whose they are.
type owners struct {
	modules Modules
	roles   *authorize.Authorizer // nil: everybody may do everything
}

// allow is for activations and rollbacks: who may deploy every type of the
// module, and owns the one that it is to serve, may have it serve that.
func (o owners) allow() Allow {
	if o.roles == nil {
		return nil
	}
	return func(ctx context.Context, r Rebinding) (string, error) {
		for _, t := range r.Types {
			if err := o.roles.Deploy(ctx, t); err != nil {
				return "", err
			}
		}
		return o.roles.Own(ctx, r.EntityType, r.Owner)
	}
}

// check refuses who does not own the type. One that nothing serves is nobody's.
func (o owners) check(ctx context.Context, entityType string) error {
	owner, err := o.find(ctx, entityType)
	if err == nil && o.roles != nil {
		_, err = o.roles.Own(ctx, entityType, owner)
	}
	return err
}

func (o owners) find(ctx context.Context, entityType string) (string, error) {
	if o.roles == nil || o.modules == nil || sharding.ValidateEntityType(entityType) != nil {
		return "", nil
	}
	owner, err := o.modules.Owner(ctx, entityType)
	if errors.Is(err, request.ErrUnknownType) {
		return "", nil
	}
	return owner, err
}

// SetOwner gives an entity type another owner.
func (s *moduleService) SetOwner(ctx context.Context, r *connect.Request[modulev1.SetOwnerRequest]) (*connect.Response[modulev1.SetOwnerResponse], error) {
	if owner := r.Msg.GetOwner(); owner != "" {
		if err := access.CheckOwner(owner); err != nil {
			return nil, status.Public(s.log, &InvalidRoleError{Reason: err.Error()})
		}
	}
	err := s.modules.SetOwner(ctx, r.Msg.GetEntityType(), r.Msg.GetOwner(), func(ctx context.Context, was string) error {
		if s.owners.roles == nil {
			return nil
		}
		_, err := s.owners.roles.Own(ctx, r.Msg.GetEntityType(), was)
		return err
	})
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&modulev1.SetOwnerResponse{}), nil
}
