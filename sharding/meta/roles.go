package meta

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// roleDelete and roleBindingDelete name what is to be removed.
type roleDelete struct {
	Name string `json:"name"`
}

type roleBindingDelete struct {
	Subject string `json:"subject"`
}

// PutRole makes the command that keeps a role, from sharding.VersionRoles on, in
// the place of the one of that name. Its revision is passed over.
func PutRole(r access.Role) []byte {
	return encode(command{Op: opPutRole, accessCommand: accessCommand{Role: &r}})
}

// DeleteRole makes the command that removes a role. One that does not exist is
// accepted; one that a binding has is ErrConflict.
func DeleteRole(name string) []byte {
	return encode(command{Op: opDeleteRole, accessCommand: accessCommand{RoleDelete: &roleDelete{Name: name}}})
}

// PutRoleBinding makes the command that gives a subject roles, from
// sharding.VersionRoles on, in the place of those that it has. A role that does
// not exist is ErrConflict, and so is to take access.RoleAdmin from the last
// subject that has it.
func PutRoleBinding(b access.Binding) []byte {
	return encode(command{Op: opPutRoleBinding, accessCommand: accessCommand{RoleBinding: &b}})
}

// DeleteRoleBinding makes the command that takes all roles from a subject. One
// without a binding is accepted; the last one with access.RoleAdmin is
// ErrConflict.
func DeleteRoleBinding(subject string) []byte {
	return encode(command{Op: opDeleteRoleBinding, accessCommand: accessCommand{RoleBindingDelete: &roleBindingDelete{Subject: subject}}})
}

// Roles returns the roles that are kept, by name; those that are built in are
// not among them.
func (v *View) Roles() []access.Role { return sorted(v.roles) }

// RoleBindings returns all bindings of roles, by subject.
func (v *View) RoleBindings() []access.Binding { return sorted(v.roleBindings) }

// RolesOf are the roles that a subject's own binding has. They are shared.
func (v *View) RolesOf(subject string) []string { return v.roleBindings[subject].Roles }

// RoleRevision counts up by one with each change of roles, their bindings and
// tokens.
func (v *View) RoleRevision() uint64 { return v.counters.RoleRevision }

// roleBytes is what counts for access.MaxBytes.
func (v *View) roleBytes() int {
	n := 0
	for _, r := range v.roles {
		n += r.Size()
	}
	for _, b := range v.roleBindings {
		n += b.Size()
	}
	return n
}

// applyRole carries out the commands about roles.
func (t *transition) applyRole(c command) (Result, error) {
	if level := t.view.ClusterVersion(); level < sharding.VersionRoles {
		return Result{}, fmt.Errorf("%w: roles are of level %d, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, sharding.VersionRoles, level)
	}
	switch {
	case c.Op == opPutRole && c.Role != nil:
		return t.putRole(*c.Role)
	case c.Op == opDeleteRole && c.RoleDelete != nil:
		return t.deleteRole(c.RoleDelete.Name)
	case c.Op == opPutRoleBinding && c.RoleBinding != nil:
		return t.putRoleBinding(*c.RoleBinding, c.First)
	case c.Op == opDeleteRoleBinding && c.RoleBindingDelete != nil:
		return t.deleteRoleBinding(c.RoleBindingDelete.Subject)
	}
	return Result{}, fmt.Errorf("%w: operation %.40q is incomplete", ErrInvalid, c.Op)
}

func (t *transition) putRole(r access.Role) (Result, error) {
	if err := r.Check(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := t.view.checkVariables(r, access.Binding{}); err != nil {
		return Result{}, err
	}
	before, known := t.view.roles[r.Name]
	if r.Revision = before.Revision; known && equalRoles(before, r) {
		return Result{Revision: before.Revision}, nil
	}
	if !known && len(t.view.roles) >= access.MaxRoles {
		return Result{}, fmt.Errorf("%w: the cluster has %d roles already", ErrInvalid, access.MaxRoles)
	}
	if err := t.roomForRoles(r.Size() - before.Size()); err != nil {
		return Result{}, err
	}
	r.Revision = t.nextRoleRevision()
	put(&t.view.roles, r.Name, r)
	t.store(prefixRole+r.Name, r)
	t.storeCounters()
	return Result{Revision: r.Revision}, nil
}

func (t *transition) deleteRole(name string) (Result, error) {
	if _, known := t.view.roles[name]; !known {
		if access.IsBuiltIn(name) {
			return Result{}, fmt.Errorf("%w: the role %s is built in and stays", ErrInvalid, name)
		}
		return Result{}, nil
	}
	for _, b := range t.view.RoleBindings() {
		if slices.Contains(b.Roles, name) {
			return Result{}, fmt.Errorf("%w: %s has the role %s", ErrConflict, b.Subject, name)
		}
	}
	next := maps.Clone(t.view.roles)
	delete(next, name)
	t.view.roles = next
	t.writes = append(t.writes, KV{Key: []byte(prefixRole + name)})
	return t.removed(), nil
}

func (t *transition) putRoleBinding(b access.Binding, first bool) (Result, error) {
	if err := b.Check(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for _, name := range b.Roles {
		if _, known := t.view.roles[name]; !known && !access.IsBuiltIn(name) {
			return Result{}, fmt.Errorf("%w: there is no role %s", ErrConflict, name)
		}
		if err := t.view.checkVariables(t.view.roles[name], b); err != nil {
			return Result{}, err
		}
	}
	b.Roles = slices.Sorted(slices.Values(b.Roles))
	before, known := t.view.roleBindings[b.Subject]
	if known && slices.Equal(before.Roles, b.Roles) {
		return Result{Revision: before.Revision}, nil
	}
	switch {
	case first && t.view.SomebodyAdmin():
		return Result{}, errAdminAlready
	case !b.BindsAdmin():
		if err := t.view.keepsAdmin(b.Subject); err != nil {
			return Result{}, err
		}
	case !t.view.lasts(b) && !t.view.lastingAdmin(b.Subject):
		return Result{}, errExpiringAdmin
	}
	if !known && len(t.view.roleBindings) >= access.MaxBindings {
		return Result{}, fmt.Errorf("%w: the cluster has %d bindings of roles already", ErrInvalid, access.MaxBindings)
	}
	if err := t.roomForRoles(b.Size() - before.Size()); err != nil {
		return Result{}, err
	}
	b.Revision = t.nextRoleRevision()
	put(&t.view.roleBindings, b.Subject, b)
	t.store(prefixRoleBinding+b.Subject, b)
	t.storeCounters()
	return Result{Revision: b.Revision}, nil
}

// checkVariables refuses a role whose rules name ids by the caller if different
// callers would have the same ids: token:alice and jwt:alice have one name. with
// is a binding that is to have the role, beside those that do.
func (v *View) checkVariables(r access.Role, with access.Binding) error {
	if v.ClusterVersion() < sharding.VersionPrincipalVariable {
		if r.Uses(access.PrincipalVariable) {
			return fmt.Errorf("%w: %s is of level %d, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, access.PrincipalVariable, sharding.VersionPrincipalVariable, v.ClusterVersion())
		}
		return nil
	}
	if !r.Uses(access.NameVariable) {
		return nil
	}
	kind, subject := "", ""
	if with.Subject != "" {
		kind, subject = access.CallerKind(with.Subject), with.Subject
	}
	for _, b := range v.RoleBindings() {
		if b.Subject == with.Subject || !slices.Contains(b.Roles, r.Name) {
			continue
		}
		if k := access.CallerKind(b.Subject); kind == "" {
			kind, subject = k, b.Subject
		} else if k != kind {
			return fmt.Errorf("%w: the role %s has %s, which is the same for callers of two kinds that have one name, and %s and %s have it: write %s", ErrConflict, r.Name, access.NameVariable, subject, b.Subject, access.PrincipalVariable)
		}
	}
	return nil
}

func (t *transition) deleteRoleBinding(subject string) (Result, error) {
	if _, known := t.view.roleBindings[subject]; !known {
		return Result{}, nil
	}
	if err := t.view.keepsAdmin(subject); err != nil {
		return Result{}, err
	}
	t.dropRoleBinding(subject)
	return t.removed(), nil
}

func (t *transition) dropRoleBinding(subject string) {
	next := maps.Clone(t.view.roleBindings)
	delete(next, subject)
	t.view.roleBindings = next
	t.writes = append(t.writes, KV{Key: []byte(prefixRoleBinding + subject)})
}

// keepsAdmin refuses that the subject loses access.RoleAdmin where nobody else
// has it for good: nobody could give roles any more.
func (v *View) keepsAdmin(subject string) error {
	if !v.lasts(v.roleBindings[subject]) || v.lastingAdmin(subject) {
		return nil
	}
	return fmt.Errorf("%w: %s is the last that has the role %s: give it to another one first", ErrConflict, subject, access.RoleAdmin)
}

func (t *transition) roomForRoles(more int) error {
	if n := t.view.roleBytes() + more; more > 0 && n > access.MaxBytes {
		return fmt.Errorf("%w: roles and their bindings of %d bytes, at most %d are allowed", ErrInvalid, n, access.MaxBytes)
	}
	return nil
}

func (t *transition) nextRoleRevision() uint64 {
	t.view.counters.RoleRevision++
	return t.view.counters.RoleRevision
}

// removed counts a removal.
func (t *transition) removed() Result {
	revision := t.nextRoleRevision()
	t.storeCounters()
	return Result{Revision: revision}
}

func equalRoles(a, b access.Role) bool {
	return a.Quotas == b.Quotas && slices.EqualFunc(a.Rules, b.Rules, func(a, b access.Rule) bool {
		return a.Effect == b.Effect && slices.Equal(a.Verbs, b.Verbs) && slices.Equal(a.Types, b.Types) &&
			slices.Equal(a.IDPrefixes, b.IDPrefixes) && slices.Equal(a.Commands, b.Commands)
	})
}

// restoreRole and restoreRoleBinding take what is stored. What does not keep
// the rules of this release was written by a later one: to leave it out would
// be to decide otherwise than that one.
func (v *View) restoreRole(name string, value []byte) error {
	if err := restoreInto(v.roles, name, value); err != nil {
		return err
	}
	r := v.roles[name]
	return laterRules(r.Name == name, r.Check())
}

func (v *View) restoreRoleBinding(subject string, value []byte) error {
	if err := restoreInto(v.roleBindings, subject, value); err != nil {
		return err
	}
	b := v.roleBindings[subject]
	return laterRules(b.Subject == subject, b.Check())
}

func laterRules(named bool, err error) error {
	switch {
	case !named:
		return errors.New("another name than the key's")
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return nil
}
