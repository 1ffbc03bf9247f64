package authorize

import (
	"context"
	"fmt"
	"slices"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding/access"
)

// GiveRole returns a *request.DeniedError unless the caller itself holds
// everything that the role allows. This keeps callers from giving away more
// rights than they have.
func (a *Authorizer) GiveRole(ctx context.Context, r access.Role) error {
	return a.give(ctx, func(t *authz.Table, may func(role, was access.Role) bool) string {
		if was, _ := t.Role(r.Name); !may(r, was) {
			return r.Name
		}
		return ""
	})
}

// Give returns a *request.DeniedError unless the caller may replace the roles
// of a subject by the given ones. The caller must hold everything that each of
// the roles allows, and for each role that is taken away, everything that the
// role denies. Each role is checked on its own, without the denials of the
// other roles, because these roles may be taken away later.
func (a *Authorizer) Give(ctx context.Context, subject string, roles []string) error {
	return a.give(ctx, func(t *authz.Table, may func(role, was access.Role) bool) string {
		for _, name := range roles {
			r, known := t.Role(name)
			if !known { // a newer revision may define it, with any rights
				r.Rules = []access.Rule{{Effect: access.Allow, Verbs: []string{access.Any}}}
			}
			if !may(r, access.Role{}) {
				return name
			}
		}
		for _, name := range t.RolesOfSubject(subject) {
			if r, _ := t.Role(name); !slices.Contains(roles, name) && !may(access.Role{}, r) {
				return name
			}
		}
		return ""
	})
}

// give rejects a change of roles if refuse returns the name of a role that the
// caller may not grant or change. Before roles are in force, there are no
// restrictions.
func (a *Authorizer) give(ctx context.Context, refuse func(t *authz.Table, may func(role, was access.Role) bool) string) error {
	if a == nil {
		return nil
	}
	table, by := a.table.Load(), makerOf(ctx)
	if table == nil || !table.Enforced() {
		return nil
	}
	name := refuse(table, func(role, was access.Role) bool { return by.who != nil && table.MayGive(by.who, role, was) })
	if name == "" {
		return nil
	}
	a.refused[authv1.Verb_SECURITY].Inc()
	audit.SetPolicyRevision(ctx, table.Revision())
	return &request.DeniedError{Verb: access.Security, Message: fmt.Sprintf("%s cannot grant or change the role %.64q: its own roles do not allow everything that the role allows; a caller with the role %s can", callerName(by.principalOf()), name, access.RoleAdmin)}
}
