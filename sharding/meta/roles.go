package meta

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// roleDelete and roleBindingDelete name the role, or the subject of the role
// binding, to remove.
type roleDelete struct {
	Name string `json:"name"`
}

type roleBindingDelete struct {
	Subject string `json:"subject"`
}

// PutRole returns the command that stores a role, replacing the role of that
// name. The revision of r is ignored. It requires sharding.VersionRoles.
func PutRole(r access.Role) []byte {
	return encode(command{Op: opPutRole, accessCommand: accessCommand{Role: &r}})
}

// DeleteRole returns the command that removes a role. Removing a missing role
// succeeds. The command fails with ErrConflict if a binding uses the role.
func DeleteRole(name string) []byte {
	return encode(command{Op: opDeleteRole, accessCommand: accessCommand{RoleDelete: &roleDelete{Name: name}}})
}

// PutRoleBinding returns the command that sets the roles of a subject,
// replacing its previous roles. It fails with ErrConflict if a role does not
// exist, or if it would remove access.RoleAdmin from the last admin. It
// requires sharding.VersionRoles.
func PutRoleBinding(b access.Binding) []byte {
	return encode(command{Op: opPutRoleBinding, accessCommand: accessCommand{RoleBinding: &b}})
}

// DeleteRoleBinding returns the command that removes all roles of a subject.
// Removing a missing binding succeeds. The command fails with ErrConflict for
// the last admin.
func DeleteRoleBinding(subject string) []byte {
	return encode(command{Op: opDeleteRoleBinding, accessCommand: accessCommand{RoleBindingDelete: &roleBindingDelete{Subject: subject}}})
}

// Roles returns the stored roles, sorted by name. It does not include the
// built-in roles.
func (v *View) Roles() []access.Role { return sortedValues(v.roles) }

// RoleBindings returns all role bindings, sorted by subject.
func (v *View) RoleBindings() []access.Binding { return sortedValues(v.roleBindings) }

// RolesOf returns the roles of a subject's own binding. The caller must not
// modify the slice.
func (v *View) RolesOf(subject string) []string { return v.roleBindings[subject].Roles }

// RoleRevision increases by one with every change of roles, role bindings or
// tokens.
func (v *View) RoleRevision() uint64 { return v.counters.RoleRevision }

// roleBytes returns the bytes that count toward access.MaxBytes.
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

// applyRole applies the commands for roles and role bindings.
func (t *transition) applyRole(c command) (Result, error) {
	if level := t.view.ClusterVersion(); level < sharding.VersionRoles {
		return Result{}, fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionRoles.NeededBy("roles need", level))
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
		return Result{}, fmt.Errorf("%w: the cluster already has %d roles", ErrInvalid, access.MaxRoles)
	}
	if err := t.checkRolesSize(r.Size() - before.Size()); err != nil {
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
			return Result{}, fmt.Errorf("%w: the role %s is built in and cannot be removed", ErrInvalid, name)
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
	return t.finishRemoval(), nil
}

func (t *transition) putRoleBinding(b access.Binding, first bool) (Result, error) {
	if err := b.Check(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for _, name := range b.Roles {
		if _, known := t.view.roles[name]; !known && !access.IsBuiltIn(name) {
			return Result{}, fmt.Errorf("%w: role %s does not exist", ErrConflict, name)
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
	case first && t.view.HasAdmin():
		return Result{}, errAdminAlready
	case !b.BindsAdmin():
		if err := t.view.checkAdminRemains(b.Subject); err != nil {
			return Result{}, err
		}
	case !t.view.isLastingAdmin(b) && !t.view.hasOtherLastingAdmin(b.Subject):
		return Result{}, errExpiringAdmin
	}
	if !known && len(t.view.roleBindings) >= access.MaxBindings {
		return Result{}, fmt.Errorf("%w: the cluster already has %d role bindings", ErrInvalid, access.MaxBindings)
	}
	if err := t.checkRolesSize(b.Size() - before.Size()); err != nil {
		return Result{}, err
	}
	b.Revision = t.nextRoleRevision()
	put(&t.view.roleBindings, b.Subject, b)
	t.store(prefixRoleBinding+b.Subject, b)
	t.storeCounters()
	return Result{Revision: b.Revision}, nil
}

// checkVariables rejects a role that names ids by the caller's name if callers
// of different kinds could have it: token:alice and jwt:alice share a name and
// would get each other's ids. with is a binding that is about to include the
// role, in addition to the stored bindings.
func (v *View) checkVariables(r access.Role, with access.Binding) error {
	if v.ClusterVersion() < sharding.VersionPrincipalVariable {
		if r.Uses(access.PrincipalVariable) {
			return fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionPrincipalVariable.NeededBy(access.PrincipalVariable+" needs", v.ClusterVersion()))
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
			return fmt.Errorf("%w: the role %s uses %s, which cannot distinguish callers of different kinds with the same name, and both %s and %s have the role: use %s instead", ErrConflict, r.Name, access.NameVariable, subject, b.Subject, access.PrincipalVariable)
		}
	}
	return nil
}

func (t *transition) deleteRoleBinding(subject string) (Result, error) {
	if _, known := t.view.roleBindings[subject]; !known {
		return Result{}, nil
	}
	if err := t.view.checkAdminRemains(subject); err != nil {
		return Result{}, err
	}
	t.dropRoleBinding(subject)
	return t.finishRemoval(), nil
}

func (t *transition) dropRoleBinding(subject string) {
	next := maps.Clone(t.view.roleBindings)
	delete(next, subject)
	t.view.roleBindings = next
	t.writes = append(t.writes, KV{Key: []byte(prefixRoleBinding + subject)})
}

// checkAdminRemains rejects removing access.RoleAdmin from the subject if no
// other subject has it permanently, because then nobody could manage roles.
func (v *View) checkAdminRemains(subject string) error {
	if !v.isLastingAdmin(v.roleBindings[subject]) || v.hasOtherLastingAdmin(subject) {
		return nil
	}
	return fmt.Errorf("%w: %s is the last subject with the role %s: bind the role to another subject first", ErrConflict, subject, access.RoleAdmin)
}

func (t *transition) checkRolesSize(more int) error {
	if n := t.view.roleBytes() + more; more > 0 && n > access.MaxBytes {
		return fmt.Errorf("%w: the roles and role bindings would have %d bytes in total, at most %d are allowed", ErrInvalid, n, access.MaxBytes)
	}
	return nil
}

func (t *transition) nextRoleRevision() uint64 {
	t.view.counters.RoleRevision++
	return t.view.counters.RoleRevision
}

// finishRemoval assigns a revision to a removal.
func (t *transition) finishRemoval() Result {
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

// restoreRole and restoreRoleBinding restore stored values. A value that
// violates the rules of this release was written by a later release. Dropping
// it would make access decisions differ from those of newer nodes, so both
// return ErrUnsupported.
func (v *View) restoreRole(name string, value []byte) error {
	if err := restoreInto(v.roles, name, value); err != nil {
		return err
	}
	r := v.roles[name]
	return checkRestored(r.Name == name, r.Check())
}

func (v *View) restoreRoleBinding(subject string, value []byte) error {
	if err := restoreInto(v.roleBindings, subject, value); err != nil {
		return err
	}
	b := v.roleBindings[subject]
	return checkRestored(b.Subject == subject, b.Check())
}

func checkRestored(named bool, err error) error {
	switch {
	case !named:
		return errors.New("the stored name differs from its key")
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return nil
}
