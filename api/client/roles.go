package client

import (
	"context"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// Roles lists the roles, with those that are built in, from the answering
// node's copy.
func (c *Client) Roles(ctx context.Context) ([]*clusterv1.Role, error) {
	res, err := call(ctx, c, c.opts.Timeout, &clusterv1.ListRolesRequest{},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.ListRolesRequest]) (*connect.Response[clusterv1.ListRolesResponse], error) {
			return n.cluster.ListRoles(ctx, r)
		})
	return res.GetRoles(), err
}

// PutRole keeps a role, in the place of the one of that name, and returns its
// revision. The role says nothing of quotas.
func (c *Client) PutRole(ctx context.Context, name string, rules ...*clusterv1.RoleRule) (revision uint64, err error) {
	return PutRoleWithQuotas(ctx, c, name, nil, rules...)
}

// PutRoleWithQuotas is Client.PutRole for a role that says something of the
// quotas of those who have it. A role may have quotas and no rules.
func PutRoleWithQuotas(ctx context.Context, c *Client, name string, quotas *clusterv1.RoleQuotas, rules ...*clusterv1.RoleRule) (revision uint64, err error) {
	res, err := call(ctx, c, c.opts.Timeout, &clusterv1.PutRoleRequest{RoleName: name, Rules: rules, Quotas: quotas},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.PutRoleRequest]) (*connect.Response[clusterv1.PutRoleResponse], error) {
			return n.cluster.PutRole(ctx, r)
		})
	return res.GetRevision(), err
}

// DeleteRole removes a role that nobody has.
func (c *Client) DeleteRole(ctx context.Context, name string) error {
	_, err := call(ctx, c, c.opts.Timeout, &clusterv1.DeleteRoleRequest{RoleName: name},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.DeleteRoleRequest]) (*connect.Response[clusterv1.DeleteRoleResponse], error) {
			return n.cluster.DeleteRole(ctx, r)
		})
	return err
}

// RoleBindings lists who has which roles, from the answering node's copy.
func (c *Client) RoleBindings(ctx context.Context) (*clusterv1.ListRoleBindingsResponse, error) {
	return call(ctx, c, c.opts.Timeout, &clusterv1.ListRoleBindingsRequest{},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.ListRoleBindingsRequest]) (*connect.Response[clusterv1.ListRoleBindingsResponse], error) {
			return n.cluster.ListRoleBindings(ctx, r)
		})
}

// PutRoleBinding gives a subject roles, such as "token:ci" the role "viewer", in
// the place of those that it has, and returns the revision of the binding.
func (c *Client) PutRoleBinding(ctx context.Context, subject string, roles ...string) (revision uint64, err error) {
	res, err := call(ctx, c, c.opts.Timeout, &clusterv1.PutRoleBindingRequest{Subject: subject, Roles: roles},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.PutRoleBindingRequest]) (*connect.Response[clusterv1.PutRoleBindingResponse], error) {
			return n.cluster.PutRoleBinding(ctx, r)
		})
	return res.GetRevision(), err
}

// DeleteRoleBinding takes all roles from a subject.
func (c *Client) DeleteRoleBinding(ctx context.Context, subject string) error {
	_, err := call(ctx, c, c.opts.Timeout, &clusterv1.DeleteRoleBindingRequest{Subject: subject},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.DeleteRoleBindingRequest]) (*connect.Response[clusterv1.DeleteRoleBindingResponse], error) {
			return n.cluster.DeleteRoleBinding(ctx, r)
		})
	return err
}

// CanI says who the caller is for the nodes, and whether it may make a call.
func (c *Client) CanI(ctx context.Context, about *clusterv1.CanIRequest) (*clusterv1.CanIResponse, error) {
	return call(ctx, c, c.opts.Timeout, about,
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.CanIRequest]) (*connect.Response[clusterv1.CanIResponse], error) {
			return n.cluster.CanI(ctx, r)
		})
}
