package backup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// carriedBindings returns the role bindings that exports contain. Tokens are
// not exported, because the author of a file could otherwise call the importing
// cluster. The bindings of the tokens are not exported either, because nobody
// could create tokens with their names there.
func carriedBindings(v *meta.View) []access.Binding {
	return slices.DeleteFunc(v.RoleBindings(), func(b access.Binding) bool {
		kind, name := access.SplitSubject(b.Subject)
		_, kept := v.Token(name)
		return kind == access.KindToken && kept
	})
}

// checkRoles rejects an archive with roles or owners if the cluster version
// does not support them, before anything is imported.
func (in *importing) checkRoles() error {
	owned := slices.ContainsFunc(in.about.Bindings, func(b meta.Activation) bool { return b.Owner != "" })
	if len(in.about.Roles)+len(in.about.RoleBindings) == 0 && !owned || in.Metadata.ClusterVersion() >= max(sharding.VersionRoles, sharding.VersionOwners) {
		return nil
	}
	return &status.RefusedError{Reason: sharding.VersionRoles.NeededBy("the backup has roles or type owners, which need", in.Metadata.ClusterVersion())}
}

// bringRoles imports the roles and role bindings of the archive and replaces
// those with the same names. It never imports the role admin: the operators of
// this cluster choose their admin, and otherwise anybody with an archive could
// become admin. Roles that allow the verb security are as powerful, so they are
// imported only with withBindings. If the cluster has an admin, it keeps its
// own roles.
func (in *importing) bringRoles() error {
	if in.somebodyIsAdmin() {
		return nil
	}
	roles, bindings, without := importableRoles(in.about.Roles, in.about.RoleBindings, in.Metadata.View().Roles(), in.withBindings)
	in.omitted = append(in.omitted, without...)
	for _, r := range roles {
		if err := in.bring(meta.PutRole(r)); err != nil {
			return fmt.Errorf("import role %s: %w", r.Name, err)
		}
	}
	for _, b := range bindings {
		if err := in.bring(meta.PutRoleBinding(b)); err != nil {
			return fmt.Errorf("import the role bindings of %s: %w", b.Subject, err)
		}
	}
	return nil
}

// importableRoles returns the roles and bindings of an archive to import into a cluster
// with roles of its own, and a list of what is left out. Unless all is set,
// no role that allows the verb security is granted, whether it is defined in
// the archive or in the cluster.
func importableRoles(roles []access.Role, bindings []access.Binding, own []access.Role, all bool) (put []access.Role, bind []access.Binding, without []string) {
	barred, left := map[string]bool{}, omittedLines{}
	for _, r := range own {
		barred[r.Name] = !all && reachesSecurity(r)
	}
	for _, r := range roles {
		if !all && reachesSecurity(r) {
			barred[r.Name] = true
			left.add("role " + r.Name)
			continue
		}
		barred[r.Name] = false
		put = append(put, r)
	}
	for _, b := range bindings {
		b.Roles = slices.DeleteFunc(slices.Clone(b.Roles), func(name string) bool {
			if barred[name] {
				left.add(b.Subject + " has " + name)
			}
			return barred[name] || name == access.RoleAdmin
		})
		if len(b.Roles) > 0 {
			bind = append(bind, b)
		}
	}
	return put, bind, left.lines()
}

// maxOmitted bounds the number of lines in Imported.Omitted.
const maxOmitted = 1000

// omittedLines collects the omitted parts.
type omittedLines struct {
	said []string
	more int
}

func (l *omittedLines) add(line string) {
	if len(l.said) == maxOmitted {
		l.more++
		return
	}
	l.said = append(l.said, line)
}

func (l *omittedLines) lines() []string {
	if l.more > 0 {
		return append(l.said, fmt.Sprintf("%d more", l.more))
	}
	return l.said
}

// reachesSecurity reports whether a role allows the verb security for anything.
// With that verb, callers can change permissions.
func reachesSecurity(r access.Role) bool {
	return slices.ContainsFunc(r.Rules, func(rule access.Rule) bool {
		return rule.Effect == access.Allow && (slices.Contains(rule.Verbs, access.Any) || slices.Contains(rule.Verbs, access.Security))
	})
}

// bringOwners restores the owners of types, under the same conditions as roles.
func (in *importing) bringOwners() error {
	if in.somebodyIsAdmin() {
		return nil
	}
	for _, b := range in.about.Bindings {
		have, _ := in.Metadata.View().Activation(b.EntityType)
		if b.Owner == "" || have.Owner == b.Owner {
			continue
		}
		if err := in.bring(meta.PutTypeOwner(b.EntityType, meta.Ownership{Was: have.Owner, Is: b.Owner})); err != nil {
			return fmt.Errorf("import the owner of entity type %s: %w", b.EntityType, err)
		}
	}
	return nil
}

func (in *importing) somebodyIsAdmin() bool {
	return slices.ContainsFunc(in.Metadata.View().RoleBindings(), access.Binding.BindsAdmin)
}

func (in *importing) bring(command []byte) error {
	_, err := in.Metadata.Do(in.ctx, command)
	if errors.Is(err, meta.ErrConflict) && in.somebodyIsAdmin() {
		return nil // somebody has become admin in the meantime
	}
	return err
}
