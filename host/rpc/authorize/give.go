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

// GiveRole says whether the caller may put a role: a *request.DeniedError if it
// does not hold what the role allows.
func (a *Authorizer) GiveRole(ctx context.Context, r access.Role) error {
	return a.give(ctx, func(t *authz.Table, may func(role, was access.Role) bool) string {
		if was, _ := t.Role(r.Name); !may(r, was) {
			return r.Name
		}
		return ""
	})
}

// Give says whether the caller may have a subject have these roles and no
// others: a *request.DeniedError if it does not hold what one of them allows, or
// what one denies that the subject has no more. Each role counts by itself: what
// another one denies may be taken back.
func (a *Authorizer) Give(ctx context.Context, subject string, roles []string) error {
	return a.give(ctx, func(t *authz.Table, may func(role, was access.Role) bool) string {
		for _, name := range roles {
			r, known := t.Role(name)
			if !known { // here, and may allow anything where it is
				r.Rules = []access.Rule{{Effect: access.Allow, Verbs: []string{access.Any}}}
			}
			if !may(r, access.Role{}) {
				return name
			}
		}
		for _, name := range t.Bound(subject) {
			if r, _ := t.Role(name); !slices.Contains(roles, name) && !may(access.Role{}, r) {
				return name
			}
		}
		return ""
	})
}

// give refuses a change of roles if the caller does not hold a role that refuse
// names. Before roles decide, nobody is held to any.
func (a *Authorizer) give(ctx context.Context, refuse func(t *authz.Table, may func(role, was access.Role) bool) string) error {
	if a == nil {
		return nil
	}
	table, by := a.table.Load(), makerOf(ctx)
	if table == nil || !table.InForce() {
		return nil
	}
	name := refuse(table, func(role, was access.Role) bool { return by.who != nil && table.MayGive(by.who, role, was) })
	if name == "" {
		return nil
	}
	a.refused[authv1.Verb_SECURITY].Inc()
	audit.Decided(ctx, table.Revision())
	return &request.DeniedError{Verb: access.Security, Message: fmt.Sprintf("%s cannot give or change the role %.64q: its own roles do not allow all that would be given; who is %s can", named(by.said()), name, access.RoleAdmin)}
}
