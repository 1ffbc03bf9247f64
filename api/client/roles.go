package client

import (
	"context"
	"crypto/sha256"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// Roles returns the roles, including the built-in ones, from the answering
// node's copy.
func (c *Client) Roles(ctx context.Context) ([]*clusterv1.Role, error) {
	roles, _, err := samePages(func(token string) ([]*clusterv1.Role, *clusterv1.ListRolesResponse, error) {
		res, err := call(ctx, c, c.opts.Timeout, &clusterv1.ListRolesRequest{PageToken: token},
			func(n *node, ctx context.Context, r *connect.Request[clusterv1.ListRolesRequest]) (*connect.Response[clusterv1.ListRolesResponse], error) {
				return n.cluster.ListRoles(ctx, r)
			})
		return res.GetRoles(), res, err
	})
	return roles, err
}

// PutRole stores a role, replacing any role of the same name, and returns its
// revision. The role sets no quotas.
func (c *Client) PutRole(ctx context.Context, name string, rules ...*clusterv1.RoleRule) (revision uint64, err error) {
	return PutRoleWithQuotas(ctx, c, name, nil, rules...)
}

// PutRoleWithQuotas is like Client.PutRole, for a role that sets quotas for its
// subjects. A role may have quotas and no rules.
func PutRoleWithQuotas(ctx context.Context, c *Client, name string, quotas *clusterv1.RoleQuotas, rules ...*clusterv1.RoleRule) (revision uint64, err error) {
	res, err := call(ctx, c, c.opts.Timeout, &clusterv1.PutRoleRequest{RoleName: name, Rules: rules, Quotas: quotas},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.PutRoleRequest]) (*connect.Response[clusterv1.PutRoleResponse], error) {
			return n.cluster.PutRole(ctx, r)
		})
	return res.GetRevision(), err
}

// DeleteRole removes a role without bindings.
func (c *Client) DeleteRole(ctx context.Context, name string) error {
	_, err := call(ctx, c, c.opts.Timeout, &clusterv1.DeleteRoleRequest{RoleName: name},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.DeleteRoleRequest]) (*connect.Response[clusterv1.DeleteRoleResponse], error) {
			return n.cluster.DeleteRole(ctx, r)
		})
	return err
}

// RoleBindings returns all role bindings, from the answering node's copy.
func (c *Client) RoleBindings(ctx context.Context) (*clusterv1.ListRoleBindingsResponse, error) {
	bindings, last, err := samePages(func(token string) ([]*clusterv1.RoleBinding, *clusterv1.ListRoleBindingsResponse, error) {
		res, err := call(ctx, c, c.opts.Timeout, &clusterv1.ListRoleBindingsRequest{PageToken: token},
			func(n *node, ctx context.Context, r *connect.Request[clusterv1.ListRoleBindingsRequest]) (*connect.Response[clusterv1.ListRoleBindingsResponse], error) {
				return n.cluster.ListRoleBindings(ctx, r)
			})
		return res.GetBindings(), res, err
	})
	if err != nil {
		return nil, err
	}
	return &clusterv1.ListRoleBindingsResponse{Bindings: bindings, Revision: last.GetRevision(), Enforced: last.GetEnforced()}, nil
}

// PutRoleBinding replaces the roles of a subject, for example binds "token:ci"
// to the role "viewer", and returns the revision of the binding.
func (c *Client) PutRoleBinding(ctx context.Context, subject string, roles ...string) (revision uint64, err error) {
	res, err := call(ctx, c, c.opts.Timeout, &clusterv1.PutRoleBindingRequest{Subject: subject, Roles: roles},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.PutRoleBindingRequest]) (*connect.Response[clusterv1.PutRoleBindingResponse], error) {
			return n.cluster.PutRoleBinding(ctx, r)
		})
	return res.GetRevision(), err
}

// DeleteRoleBinding removes all roles of a subject.
func (c *Client) DeleteRoleBinding(ctx context.Context, subject string) error {
	_, err := call(ctx, c, c.opts.Timeout, &clusterv1.DeleteRoleBindingRequest{Subject: subject},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.DeleteRoleBindingRequest]) (*connect.Response[clusterv1.DeleteRoleBindingResponse], error) {
			return n.cluster.DeleteRoleBinding(ctx, r)
		})
	return err
}

// Tokens manages the tokens that the cluster stores.
type Tokens struct{ c *Client }

// TokensOf returns the token management of the cluster that c calls.
func TokensOf(c *Client) Tokens { return Tokens{c} }

// List returns the tokens that the cluster stores, from the answering node's
// copy.
func (t Tokens) List(ctx context.Context) ([]*clusterv1.Token, error) {
	tokens, _, err := samePages(func(token string) ([]*clusterv1.Token, *clusterv1.ListTokensResponse, error) {
		res, err := call(ctx, t.c, t.c.opts.Timeout, &clusterv1.ListTokensRequest{PageToken: token},
			func(n *node, ctx context.Context, r *connect.Request[clusterv1.ListTokensRequest]) (*connect.Response[clusterv1.ListTokensResponse], error) {
				return n.cluster.ListTokens(ctx, r)
			})
		return res.GetTokens(), res, err
	})
	return tokens, err
}

// Create stores a token by its SHA-256 and binds its bearer, "token:NAME", to
// roles. The cluster never sees the token itself, which the caller has
// generated as "hst_" followed by 256 random bits. If expires is zero, the
// token never expires. It returns the revision of the token.
func (t Tokens) Create(ctx context.Context, name string, hash [sha256.Size]byte, expires time.Time, roles ...string) (revision uint64, err error) {
	req := &clusterv1.CreateTokenRequest{TokenName: name, TokenSha256: hash[:], Roles: roles}
	if !expires.IsZero() {
		req.ExpiresAt = timestamppb.New(expires)
	}
	res, err := call(ctx, t.c, t.c.opts.Timeout, req,
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.CreateTokenRequest]) (*connect.Response[clusterv1.CreateTokenResponse], error) {
			return n.cluster.CreateToken(ctx, r)
		})
	return res.GetRevision(), err
}

// Remove removes a stored token and all roles of its bearer.
func (t Tokens) Remove(ctx context.Context, name string) error {
	_, err := call(ctx, t.c, t.c.opts.Timeout, &clusterv1.DeleteTokenRequest{TokenName: name},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.DeleteTokenRequest]) (*connect.Response[clusterv1.DeleteTokenResponse], error) {
			return n.cluster.DeleteToken(ctx, r)
		})
	return err
}

// CanI returns the identity under which the nodes know the caller, and whether
// that identity may make the given call.
func (c *Client) CanI(ctx context.Context, about *clusterv1.CheckAccessRequest) (*clusterv1.CheckAccessResponse, error) {
	return call(ctx, c, c.opts.Timeout, about,
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.CheckAccessRequest]) (*connect.Response[clusterv1.CheckAccessResponse], error) {
			return n.cluster.CheckAccess(ctx, r)
		})
}
