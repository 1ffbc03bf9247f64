package meta

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// tokenPut is a token with the roles of its bearer.
type tokenPut struct {
	Token access.Token `json:"token"`
	Roles []string     `json:"roles"`
}

// tokenDelete names the token to remove.
type tokenDelete struct {
	Name string `json:"name"`
}

// keptExpired is how long an expired token is kept. Clocks differ between
// nodes, and a token must not be removed while some node still accepts it.
const keptExpired = time.Hour

// PutToken returns the command that stores a token and gives its bearer roles.
// The revision of t is ignored. Repeating the command succeeds.
//
// The command fails with ErrConflict if the name or the hash is already stored,
// if the subject already has roles or owns an entity type, if a role does not
// exist, or if the token expires and no other subject is a permanent admin. It
// also removes the tokens that had expired an hour before t was created,
// together with the roles of their bearers. It requires sharding.VersionTokens.
func PutToken(t access.Token, roles ...string) []byte {
	return encode(command{Op: opPutToken, accessCommand: accessCommand{TokenPut: &tokenPut{Token: t, Roles: roles}}})
}

// PutFirstToken is like PutToken, but fails with ErrConflict if an admin
// exists.
func PutFirstToken(t access.Token, roles ...string) []byte {
	return encode(command{Op: opPutToken, accessCommand: accessCommand{TokenPut: &tokenPut{Token: t, Roles: roles}, First: true}})
}

// PutFirstRoleBinding is like PutRoleBinding, but fails with ErrConflict if an
// admin exists. It requires sharding.VersionTokens.
func PutFirstRoleBinding(b access.Binding) []byte {
	return encode(command{Op: opPutRoleBinding, accessCommand: accessCommand{RoleBinding: &b, First: true}})
}

// DeleteToken returns the command that removes a token and the roles of its
// bearer. Removing a missing token succeeds. The command fails with ErrConflict
// for the token of the last admin.
func DeleteToken(name string) []byte {
	return encode(command{Op: opDeleteToken, accessCommand: accessCommand{TokenDelete: &tokenDelete{Name: name}}})
}

// Tokens returns the stored tokens, sorted by name.
func (v *View) Tokens() []access.Token { return sortedValues(v.tokens) }

// Token returns a token by name.
func (v *View) Token(name string) (access.Token, bool) {
	t, ok := v.tokens[name]
	return t, ok
}

// applyToken applies the commands for tokens.
func (t *transition) applyToken(c command) (Result, error) {
	if level := t.view.ClusterVersion(); level < sharding.VersionTokens {
		return Result{}, fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionTokens.NeededBy("tokens need", level))
	}
	switch {
	case c.Op == opPutToken && c.TokenPut != nil:
		return t.putToken(*c.TokenPut, c.First)
	case c.Op == opDeleteToken && c.TokenDelete != nil:
		return t.deleteToken(c.TokenDelete.Name)
	}
	return Result{}, fmt.Errorf("%w: operation %.40q is incomplete", ErrInvalid, c.Op)
}

func (t *transition) putToken(p tokenPut, first bool) (Result, error) {
	token, b := p.Token, access.Binding{Subject: p.Token.Subject(), Roles: slices.Sorted(slices.Values(p.Roles))}
	if err := errors.Join(token.Check(), b.Check()); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	before, known := t.view.tokens[token.Name]
	bound, has := t.view.roleBindings[b.Subject]
	if known && before.Hash == token.Hash && before.Expires == token.Expires && slices.Equal(bound.Roles, b.Roles) {
		return Result{Revision: before.Revision}, nil
	}
	switch {
	case first && t.view.HasAdmin():
		return Result{}, errAdminAlready
	case known:
		return Result{}, fmt.Errorf("%w: a token named %s exists already: remove it first, or choose a different name", ErrConflict, token.Name)
	case has:
		return Result{}, fmt.Errorf("%w: %s already has roles, probably for a different token, for example one in a token file: choose a different name, or remove that binding first", ErrConflict, b.Subject)
	}
	if owned := t.view.ownedBy(b.Subject); owned != "" {
		return Result{}, fmt.Errorf("%w: %s owns the entity type %.64q, through an earlier token of that name: change the owner of its types first with hostd type owner, or choose a different name", ErrConflict, b.Subject, owned)
	}
	expired := t.view.expiredTokens(token.CreatedAt)
	for _, other := range t.view.tokens {
		if other.Hash == token.Hash && !slices.Contains(expired, other.Name) {
			return Result{}, fmt.Errorf("%w: the token is already stored under the name %s", ErrConflict, other.Name)
		}
	}
	if len(t.view.tokens)-len(expired) >= access.MaxTokens {
		return Result{}, fmt.Errorf("%w: the cluster already has %d tokens", ErrInvalid, access.MaxTokens)
	}
	if b.BindsAdmin() && token.Expires != 0 && !t.view.hasOtherLastingAdmin(b.Subject) {
		return Result{}, errExpiringAdmin
	}
	for _, name := range expired {
		t.dropToken(name)
	}
	// Store the token before its bearer gets roles: an expiring token does not
	// count as a permanent admin.
	token.Revision = t.view.counters.RoleRevision + 1
	put(&t.view.tokens, token.Name, token)
	res, err := t.putRoleBinding(b, first)
	if err != nil {
		return Result{}, err
	}
	t.store(prefixToken+token.Name, token)
	return res, nil
}

// errAdminAlready is returned if the first admin is to be created but an admin
// exists.
var errAdminAlready = fmt.Errorf("%w: the cluster already has an %s", ErrConflict, access.RoleAdmin)

// errExpiringAdmin is returned because nobody could manage roles after the
// token has expired.
var errExpiringAdmin = fmt.Errorf("%w: no other subject is a permanent %s, so this token must not expire", ErrConflict, access.RoleAdmin)

func (t *transition) deleteToken(name string) (Result, error) {
	token, known := t.view.tokens[name]
	if !known {
		return Result{}, nil
	}
	if err := t.view.checkAdminRemains(token.Subject()); err != nil {
		return Result{}, err
	}
	t.dropToken(name)
	return t.finishRemoval(), nil
}

// dropToken removes a token and the roles of its bearer.
func (t *transition) dropToken(name string) {
	next := maps.Clone(t.view.tokens)
	delete(next, name)
	t.writes = append(t.writes, KV{Key: []byte(prefixToken + name)})
	subject := t.view.tokens[name].Subject()
	t.view.tokens = next
	if _, has := t.view.roleBindings[subject]; has {
		t.dropRoleBinding(subject)
	}
}

// expiredTokens returns the sorted names of the tokens that expired more than
// keptExpired before the time at, in Unix nanoseconds.
func (v *View) expiredTokens(at int64) []string {
	var out []string
	for _, t := range v.Tokens() {
		if t.Expires != 0 && t.Expires < at/int64(time.Second)-int64(keptExpired/time.Second) {
			out = append(out, t.Name)
		}
	}
	return out
}

// isLastingAdmin reports whether the binding makes its subject a permanent
// admin, which a token that expires does not.
func (v *View) isLastingAdmin(b access.Binding) bool {
	kind, name := access.SplitSubject(b.Subject)
	return b.BindsAdmin() && !(kind == access.KindToken && v.tokens[name].Expires != 0)
}

// hasOtherLastingAdmin reports whether a subject other than the given subject
// is a permanent admin.
func (v *View) hasOtherLastingAdmin(but string) bool {
	for _, b := range v.roleBindings {
		if b.Subject != but && v.isLastingAdmin(b) {
			return true
		}
	}
	return false
}

// HasAdmin reports whether an admin exists. Role checks are on if an admin
// exists.
func (v *View) HasAdmin() bool {
	for _, b := range v.roleBindings {
		if b.BindsAdmin() {
			return true
		}
	}
	return false
}

// restoreToken restores a stored token, with the same checks as restoreRole.
func (v *View) restoreToken(name string, value []byte) error {
	if err := restoreInto(v.tokens, name, value); err != nil {
		return err
	}
	t := v.tokens[name]
	return checkRestored(t.Name == name, t.Check())
}
