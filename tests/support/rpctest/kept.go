package rpctest

import (
	"context"
	"errors"
	"sync"

	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// Kept is the metadata of a single-node cluster at the highest cluster version, and
// stores roles. It implements clusterapi.RoleStore and is safe for concurrent use.
type Kept struct {
	mu    sync.Mutex
	state *meta.State
	err   error // returned by every call if not nil
	// Changed is called after each change with the lock held; it may be nil.
	Changed func(*meta.View)
}

// NewKept returns the metadata of a new cluster.
func NewKept() *Kept {
	k := &Kept{state: meta.New()}
	_, _, err := k.state.Apply(1, meta.CreateCluster(meta.Cluster{ID: "c1", Format: 1, Shards: 4, CreatedAt: 1},
		meta.Member{Node: "n1", Address: "127.0.0.1:1", Status: meta.StatusUp, Speaks: sharding.SupportedVersions}))
	if err != nil {
		panic(err)
	}
	return k
}

// Fail makes every call return err. Nil lets calls succeed again.
func (k *Kept) Fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func (k *Kept) view() (*meta.View, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.View(), k.err
}

func (k *Kept) do(command []byte) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return 0, k.err
	}
	_, result, err := k.state.Apply(k.state.View().Index()+1, command)
	if err != nil {
		return 0, err
	}
	res, err := meta.DecodeResult(result)
	switch {
	case errors.Is(err, meta.ErrInvalid):
		return 0, &clusterapi.InvalidRoleError{Reason: err.Error()}
	case err != nil:
		return 0, &status.RefusedError{Reason: err.Error()}
	}
	if k.Changed != nil {
		k.Changed(k.state.View())
	}
	return res.Revision, nil
}

// Roles implements clusterapi.RoleStore.
func (k *Kept) Roles() ([]access.Role, uint64, error) {
	v, err := k.view()
	return v.Roles(), v.RoleRevision(), err
}

// RoleBindings implements clusterapi.RoleStore.
func (k *Kept) RoleBindings() ([]access.Binding, uint64, error) {
	v, err := k.view()
	return v.RoleBindings(), v.RoleRevision(), err
}

// PutRole implements clusterapi.RoleStore.
func (k *Kept) PutRole(_ context.Context, r access.Role) (uint64, error) {
	return k.do(meta.PutRole(r))
}

// DeleteRole implements clusterapi.RoleStore.
func (k *Kept) DeleteRole(_ context.Context, name string) (uint64, error) {
	return k.do(meta.DeleteRole(name))
}

// PutRoleBinding implements clusterapi.RoleStore.
func (k *Kept) PutRoleBinding(_ context.Context, b access.Binding) (uint64, error) {
	return k.do(meta.PutRoleBinding(b))
}

// DeleteRoleBinding implements clusterapi.RoleStore.
func (k *Kept) DeleteRoleBinding(_ context.Context, subject string) (uint64, error) {
	return k.do(meta.DeleteRoleBinding(subject))
}

// Tokens implements clusterapi.RoleStore.
func (k *Kept) Tokens() ([]clusterapi.Token, uint64, error) {
	v, err := k.view()
	var out []clusterapi.Token
	for _, t := range v.Tokens() {
		out = append(out, clusterapi.Token{Token: t, Roles: v.RolesOf(t.Subject())})
	}
	return out, v.RoleRevision(), err
}

// PutToken implements clusterapi.RoleStore.
func (k *Kept) PutToken(_ context.Context, t access.Token, roles []string) (uint64, error) {
	t.CreatedAt = 1
	return k.do(meta.PutToken(t, roles...))
}

// DeleteToken implements clusterapi.RoleStore.
func (k *Kept) DeleteToken(_ context.Context, name string) (uint64, error) {
	return k.do(meta.DeleteToken(name))
}
