package clusterapi

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding/access"
)

// rolesHandler has the methods of the ClusterService for roles, role bindings and
// tokens.
type rolesHandler interface {
	ListRoles(context.Context, *connect.Request[clusterv1.ListRolesRequest]) (*connect.Response[clusterv1.ListRolesResponse], error)
	PutRole(context.Context, *connect.Request[clusterv1.PutRoleRequest]) (*connect.Response[clusterv1.PutRoleResponse], error)
	DeleteRole(context.Context, *connect.Request[clusterv1.DeleteRoleRequest]) (*connect.Response[clusterv1.DeleteRoleResponse], error)
	ListRoleBindings(context.Context, *connect.Request[clusterv1.ListRoleBindingsRequest]) (*connect.Response[clusterv1.ListRoleBindingsResponse], error)
	PutRoleBinding(context.Context, *connect.Request[clusterv1.PutRoleBindingRequest]) (*connect.Response[clusterv1.PutRoleBindingResponse], error)
	DeleteRoleBinding(context.Context, *connect.Request[clusterv1.DeleteRoleBindingRequest]) (*connect.Response[clusterv1.DeleteRoleBindingResponse], error)
	ListTokens(context.Context, *connect.Request[clusterv1.ListTokensRequest]) (*connect.Response[clusterv1.ListTokensResponse], error)
	CreateToken(context.Context, *connect.Request[clusterv1.CreateTokenRequest]) (*connect.Response[clusterv1.CreateTokenResponse], error)
	DeleteToken(context.Context, *connect.Request[clusterv1.DeleteTokenRequest]) (*connect.Response[clusterv1.DeleteTokenResponse], error)
	CheckAccess(context.Context, *connect.Request[clusterv1.CheckAccessRequest]) (*connect.Response[clusterv1.CheckAccessResponse], error)
}

// RoleStore stores the roles of the cluster, on any node. Reads use this node's
// copy, and fail with request.ErrNotReady until it has caught up.
//
// Changes return when they are durable and this node has applied them. They
// fail with an *InvalidRoleError, or with a *status.RefusedError if they
// conflict with the stored state or the cluster version does not support roles.
type RoleStore interface {
	// Roles returns the stored roles, without the built-in ones, and the
	// revision of the last change.
	Roles() ([]access.Role, uint64, error)
	PutRole(ctx context.Context, r access.Role) (revision uint64, err error)
	DeleteRole(ctx context.Context, name string) (revision uint64, err error)
	// RoleBindings returns the roles of each subject, and the revision of the
	// last change.
	RoleBindings() ([]access.Binding, uint64, error)
	PutRoleBinding(ctx context.Context, b access.Binding) (revision uint64, err error)
	DeleteRoleBinding(ctx context.Context, subject string) (revision uint64, err error)
	// Tokens returns the tokens of the cluster, and the revision of the last
	// change.
	Tokens() ([]Token, uint64, error)
	// PutToken stores a token that has not expired yet. The store sets its
	// creation time.
	PutToken(ctx context.Context, t access.Token, roles []string) (revision uint64, err error)
	DeleteToken(ctx context.Context, name string) (revision uint64, err error)
}

// InvalidRoleError says why a role, binding or token is invalid.
type InvalidRoleError struct{ Reason string }

func (e *InvalidRoleError) Error() string { return e.Reason }

// Code implements status.Coded.
func (e *InvalidRoleError) Code() connect.Code { return connect.CodeInvalidArgument }

// roleService implements the calls about roles, bindings and tokens.
type roleService struct {
	Store  RoleStore
	Owners TypeOwners
	Auth   *authorize.Authorizer // nil if the node does not authenticate callers
	// Callers authenticates callers; nil if Auth is nil.
	Callers *authn.Authenticator
	Logger  *slog.Logger
}

// awaitRevision waits until this node authorizes calls by a revision of the
// roles that is not older than the given one.
func (s *roleService) awaitRevision(ctx context.Context, revision uint64) error {
	if s.Auth == nil {
		return nil
	}
	return s.Auth.Await(ctx, revision)
}

// ListRoles lists the roles, including the built-in ones, in pages.
func (s *roleService) ListRoles(_ context.Context, req *connect.Request[clusterv1.ListRolesRequest]) (*connect.Response[clusterv1.ListRolesResponse], error) {
	kept, revision, err := s.Store.Roles()
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	out := &clusterv1.ListRolesResponse{Revision: revision}
	roles := slices.SortedFunc(slices.Values(append(access.BuiltIn(), kept...)), func(a, b access.Role) int { return strings.Compare(a.Name, b.Name) })
	out.Roles, out.NextPageToken, err = page.Of(req.Msg, page.Filter("roles"), roles, func(r *access.Role) string { return r.Name }, roleMessage)
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	return connect.NewResponse(out), nil
}

func roleMessage(r *access.Role) *clusterv1.Role {
	m := &clusterv1.Role{Name: r.Name, Revision: r.Revision, BuiltIn: access.IsBuiltIn(r.Name), Quotas: showQuotas(r.Quotas)}
	for _, rule := range r.Rules {
		m.Rules = append(m.Rules, &clusterv1.RoleRule{Effect: string(rule.Effect), Verbs: rule.Verbs, Types: rule.Types, IdPrefixes: rule.IDPrefixes, Commands: rule.Commands})
	}
	return m
}

// PutRole stores a role.
func (s *roleService) PutRole(ctx context.Context, req *connect.Request[clusterv1.PutRoleRequest]) (*connect.Response[clusterv1.PutRoleResponse], error) {
	r := access.Role{Name: req.Msg.GetRoleName(), Quotas: quotasOf(req.Msg.GetQuotas())}
	for _, m := range req.Msg.GetRules() {
		r.Rules = append(r.Rules, access.Rule{Effect: access.Effect(m.GetEffect()), Verbs: m.GetVerbs(), Types: m.GetTypes(), IDPrefixes: m.GetIdPrefixes(), Commands: m.GetCommands()})
	}
	if r.Check() == nil { // if the role is invalid, the store returns the error
		if err := s.Auth.GiveRole(ctx, r); err != nil {
			return nil, status.Public(s.Logger, err)
		}
	}
	revision, err := s.Store.PutRole(ctx, r)
	if err == nil {
		err = s.awaitRevision(ctx, revision)
	}
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	return connect.NewResponse(&clusterv1.PutRoleResponse{Revision: revision}), nil
}

func quotasOf(m *clusterv1.RoleQuotas) access.Quotas {
	return access.Quotas{
		CommandsPerSecond: m.GetCommandsPerSecond(), FuelPerSecond: m.GetFuelPerSecond(), BytesPerSecond: m.GetBytesPerSecond(),
		Streams: m.GetStreams(), Connections: m.GetConnections(), Uploads: m.GetUploads(), CompileSeconds: m.GetCompileSecondsPerMinute(),
	}
}

// showQuotas returns nil if a role sets no quotas.
func showQuotas(q access.Quotas) *clusterv1.RoleQuotas {
	if q == (access.Quotas{}) {
		return nil
	}
	return &clusterv1.RoleQuotas{
		CommandsPerSecond: q.CommandsPerSecond, FuelPerSecond: q.FuelPerSecond, BytesPerSecond: q.BytesPerSecond,
		Streams: q.Streams, Connections: q.Connections, Uploads: q.Uploads, CompileSecondsPerMinute: q.CompileSeconds,
	}
}

// DeleteRole deletes a role.
func (s *roleService) DeleteRole(ctx context.Context, req *connect.Request[clusterv1.DeleteRoleRequest]) (*connect.Response[clusterv1.DeleteRoleResponse], error) {
	revision, err := s.Store.DeleteRole(ctx, req.Msg.GetRoleName())
	if err == nil {
		err = s.awaitRevision(ctx, revision)
	}
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	return connect.NewResponse(&clusterv1.DeleteRoleResponse{}), nil
}

// ListRoleBindings lists the roles of each subject, in pages.
func (s *roleService) ListRoleBindings(_ context.Context, req *connect.Request[clusterv1.ListRoleBindingsRequest]) (*connect.Response[clusterv1.ListRoleBindingsResponse], error) {
	bindings, revision, err := s.Store.RoleBindings()
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	out := &clusterv1.ListRoleBindingsResponse{Revision: revision, Enforced: slices.ContainsFunc(bindings, access.Binding.BindsAdmin)}
	bindings = slices.SortedFunc(slices.Values(bindings), func(a, b access.Binding) int { return strings.Compare(a.Subject, b.Subject) })
	out.Bindings, out.NextPageToken, err = page.Of(req.Msg, page.Filter("role bindings"), bindings,
		func(b *access.Binding) string { return b.Subject },
		func(b *access.Binding) *clusterv1.RoleBinding {
			return &clusterv1.RoleBinding{Subject: b.Subject, Roles: b.Roles, Revision: b.Revision}
		})
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	return connect.NewResponse(out), nil
}

// PutRoleBinding sets the roles of a subject. The first `admin` binding turns
// role checks on. It must name the caller, because a typo would lock everybody
// out.
func (s *roleService) PutRoleBinding(ctx context.Context, req *connect.Request[clusterv1.PutRoleBindingRequest]) (*connect.Response[clusterv1.PutRoleBindingResponse], error) {
	b := access.Binding{Subject: req.Msg.GetSubject(), Roles: req.Msg.GetRoles()}
	if s.Auth != nil && b.BindsAdmin() && !authorize.AllowedByRoles(ctx) && !authz.Names(b.Subject, authn.Of(ctx).Principal) {
		return nil, status.Public(s.Logger, &status.RefusedError{Reason: "the first binding of " + access.RoleAdmin + " must name its creator, because a typo would lock everybody out: call with that credential"})
	}
	if b.Check() == nil {
		if err := s.Auth.Give(ctx, b.Subject, b.Roles); err != nil {
			return nil, status.Public(s.Logger, err)
		}
	}
	revision, err := s.Store.PutRoleBinding(ctx, b)
	if err == nil {
		err = s.awaitRevision(ctx, revision)
	}
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	return connect.NewResponse(&clusterv1.PutRoleBindingResponse{Revision: revision}), nil
}

// DeleteRoleBinding removes all roles of a subject.
func (s *roleService) DeleteRoleBinding(ctx context.Context, req *connect.Request[clusterv1.DeleteRoleBindingRequest]) (*connect.Response[clusterv1.DeleteRoleBindingResponse], error) {
	if err := s.Auth.Give(ctx, req.Msg.GetSubject(), nil); err != nil {
		return nil, status.Public(s.Logger, err)
	}
	revision, err := s.Store.DeleteRoleBinding(ctx, req.Msg.GetSubject())
	if err == nil {
		err = s.awaitRevision(ctx, revision)
	}
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	return connect.NewResponse(&clusterv1.DeleteRoleBindingResponse{}), nil
}

// Token is a token that the cluster stores, with the roles of its bearer.
type Token struct {
	access.Token
	Roles   []string
	Expired bool
}

// ListTokens lists the tokens that the cluster stores, in pages.
func (s *roleService) ListTokens(_ context.Context, req *connect.Request[clusterv1.ListTokensRequest]) (*connect.Response[clusterv1.ListTokensResponse], error) {
	kept, revision, err := s.Store.Tokens()
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	out := &clusterv1.ListTokensResponse{Revision: revision}
	kept = slices.SortedFunc(slices.Values(kept), func(a, b Token) int { return strings.Compare(a.Name, b.Name) })
	out.Tokens, out.NextPageToken, err = page.Of(req.Msg, page.Filter("tokens"), kept, func(t *Token) string { return t.Name }, tokenMessage)
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	return connect.NewResponse(out), nil
}

func tokenMessage(t *Token) *clusterv1.Token {
	m := &clusterv1.Token{TokenName: t.Name, Roles: t.Roles, CreatedAt: timestamppb.New(time.Unix(0, t.CreatedAt)), Revision: t.Revision, Expired: t.Expired}
	if t.Expires != 0 {
		m.ExpiresAt = timestamppb.New(time.Unix(t.Expires, 0))
	}
	return m
}

// CreateToken stores a token by its hash, and binds the roles to it. It rejects
// a name that the token file of this node also has, because the bearer of that
// token would get the roles too.
func (s *roleService) CreateToken(ctx context.Context, req *connect.Request[clusterv1.CreateTokenRequest]) (*connect.Response[clusterv1.CreateTokenResponse], error) {
	t := access.Token{Name: req.Msg.GetTokenName()}
	if len(req.Msg.GetTokenSha256()) != len(t.Hash) {
		return nil, status.Public(s.Logger, status.Argument(fmt.Sprintf("token_sha256 must have %[2]d bytes, got %[1]d", len(req.Msg.GetTokenSha256()), len(t.Hash))))
	}
	copy(t.Hash[:], req.Msg.GetTokenSha256())
	if at := req.Msg.GetExpiresAt(); at != nil {
		if t.Expires = at.GetSeconds(); t.Expires <= 0 {
			return nil, status.Public(s.Logger, status.Argument("the token has already expired"))
		}
	}
	b := access.Binding{Subject: t.Subject(), Roles: req.Msg.GetRoles()}
	if s.Auth != nil && b.BindsAdmin() && !authorize.AllowedByRoles(ctx) {
		return nil, status.Public(s.Logger, &status.RefusedError{Reason: "the first " + access.RoleAdmin + " must be an existing caller, because a typo would lock everybody out: use 'hostd binding put' with a credential that nodes already accept"})
	}
	if s.Callers != nil && s.Callers.InFile(t.Name) {
		return nil, status.Public(s.Logger, &status.RefusedError{Reason: "the token file of this node has a token of that name, whose bearer would get the roles too"})
	}
	if b.Check() == nil {
		if err := s.Auth.Give(ctx, b.Subject, b.Roles); err != nil {
			return nil, status.Public(s.Logger, err)
		}
	}
	revision, err := s.Store.PutToken(ctx, t, b.Roles)
	if err == nil {
		err = s.awaitRevision(ctx, revision)
	}
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	return connect.NewResponse(&clusterv1.CreateTokenResponse{Revision: revision}), nil
}

// DeleteToken deletes a token and the roles of its bearer.
func (s *roleService) DeleteToken(ctx context.Context, req *connect.Request[clusterv1.DeleteTokenRequest]) (*connect.Response[clusterv1.DeleteTokenResponse], error) {
	revision, err := s.Store.DeleteToken(ctx, req.Msg.GetTokenName())
	if err == nil {
		err = s.awaitRevision(ctx, revision)
	}
	if err != nil {
		return nil, status.Public(s.Logger, err)
	}
	return connect.NewResponse(&clusterv1.DeleteTokenResponse{}), nil
}

// CheckAccess returns the caller's identity, and whether it may make a call.
func (s *roleService) CheckAccess(ctx context.Context, req *connect.Request[clusterv1.CheckAccessRequest]) (*connect.Response[clusterv1.CheckAccessResponse], error) {
	m := req.Msg
	c, known := authorize.CallOf(m)
	if !known {
		return nil, status.Public(s.Logger, status.Argument("unknown verb; 'hostd role describe admin' lists the verbs"))
	}
	if s.Auth == nil {
		return connect.NewResponse(&clusterv1.CheckAccessResponse{
			Allowed: true, Reason: "this node does not authenticate callers", Kind: string(authn.KindAnonymous),
		}), nil
	}
	a := s.Auth.Explain(ctx, c)
	if owned := c.Verb == authv1.Verb_DEPLOY || c.Verb == authv1.Verb_SETTINGS; a.Allowed && owned && c.Types == authz.One {
		owner, err := s.Owners.Owner(ctx, c.Type)
		if err != nil {
			return nil, status.Public(s.Logger, err)
		}
		if err := s.Auth.Owns(ctx, c.Type, owner); err != nil {
			a.Allowed, a.Reason = false, err.Error()
		}
	}
	return connect.NewResponse(&clusterv1.CheckAccessResponse{
		Allowed: a.Allowed, Reason: a.Reason, Kind: string(a.Caller.Kind), Name: a.Caller.Name, Groups: a.Caller.Groups, Roles: a.Roles,
	}), nil
}
