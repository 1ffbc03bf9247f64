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

// tokenDelete names what is to be removed.
type tokenDelete struct {
	Name string `json:"name"`
}

// keptExpired is how long after its end a token is kept: the clocks of nodes
// differ, and a token is not to go that another node still takes.
const keptExpired = time.Hour

// PutToken makes the command that keeps a token and gives its bearer roles, at
// once, from sharding.VersionTokens on. Its revision is passed over. The same
// command again is accepted. ErrConflict is a name or a hash that is kept
// already, a subject that has roles already or owns an entity type, a role that
// is none, and a token that expires where nobody else would be admin. Tokens
// that had expired an hour before it was made go, with the roles of their
// bearers.
func PutToken(t access.Token, roles ...string) []byte {
	return encode(command{Op: opPutToken, accessCommand: accessCommand{TokenPut: &tokenPut{Token: t, Roles: roles}}})
}

// PutFirstToken is PutToken that is ErrConflict once somebody is admin.
func PutFirstToken(t access.Token, roles ...string) []byte {
	return encode(command{Op: opPutToken, accessCommand: accessCommand{TokenPut: &tokenPut{Token: t, Roles: roles}, First: true}})
}

// PutFirstRoleBinding is PutRoleBinding, from sharding.VersionTokens on, that is
// ErrConflict once somebody is admin.
func PutFirstRoleBinding(b access.Binding) []byte {
	return encode(command{Op: opPutRoleBinding, accessCommand: accessCommand{RoleBinding: &b, First: true}})
}

// DeleteToken makes the command that removes a token and the roles of its
// bearer. One that does not exist is accepted; that of the last one who is
// admin is ErrConflict.
func DeleteToken(name string) []byte {
	return encode(command{Op: opDeleteToken, accessCommand: accessCommand{TokenDelete: &tokenDelete{Name: name}}})
}

// Tokens returns the tokens that are kept, by name.
func (v *View) Tokens() []access.Token { return sorted(v.tokens) }

// Token returns a token by name.
func (v *View) Token(name string) (access.Token, bool) {
	t, ok := v.tokens[name]
	return t, ok
}

// applyToken carries out the commands about tokens.
func (t *transition) applyToken(c command) (Result, error) {
	if level := t.view.ClusterVersion(); level < sharding.VersionTokens {
		return Result{}, fmt.Errorf("%w: tokens are of level %d, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, sharding.VersionTokens, level)
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
	case first && t.view.SomebodyAdmin():
		return Result{}, errAdminAlready
	case known:
		return Result{}, fmt.Errorf("%w: there is a token %s already: remove it first, or give the new one another name", ErrConflict, token.Name)
	case has:
		return Result{}, fmt.Errorf("%w: %s has roles already, so that it is somebody else's, such as of a token file: give the token another name, or remove that binding first", ErrConflict, b.Subject)
	}
	if owned := t.view.ownedBy(b.Subject); owned != "" {
		return Result{}, fmt.Errorf("%w: %s owns the entity type %.64q, from an earlier token of that name or another one: give its types to others first, or to nobody, with hostd type owner, or give the token another name", ErrConflict, b.Subject, owned)
	}
	expired := t.view.expired(token.CreatedAt)
	for _, other := range t.view.tokens {
		if other.Hash == token.Hash && !slices.Contains(expired, other.Name) {
			return Result{}, fmt.Errorf("%w: the token is kept already, as %s", ErrConflict, other.Name)
		}
	}
	if len(t.view.tokens)-len(expired) >= access.MaxTokens {
		return Result{}, fmt.Errorf("%w: the cluster has %d tokens already", ErrInvalid, access.MaxTokens)
	}
	if b.BindsAdmin() && token.Expires != 0 && !t.view.lastingAdmin(b.Subject) {
		return Result{}, errExpiringAdmin
	}
	for _, name := range expired {
		t.dropToken(name)
	}
	// The token is there before its bearer has roles: one that expires is no
	// lasting admin.
	token.Revision = t.view.counters.RoleRevision + 1
	put(&t.view.tokens, token.Name, token)
	res, err := t.putRoleBinding(b, first)
	if err != nil {
		return Result{}, err
	}
	t.store(prefixToken+token.Name, token)
	return res, nil
}

// errAdminAlready is of what was to be done before.
var errAdminAlready = fmt.Errorf("%w: somebody is %s already", ErrConflict, access.RoleAdmin)

// errExpiringAdmin: once the token has expired nobody could give roles.
var errExpiringAdmin = fmt.Errorf("%w: nobody else is %s for good, so this token must not expire", ErrConflict, access.RoleAdmin)

func (t *transition) deleteToken(name string) (Result, error) {
	token, known := t.view.tokens[name]
	if !known {
		return Result{}, nil
	}
	if err := t.view.keepsAdmin(token.Subject()); err != nil {
		return Result{}, err
	}
	t.dropToken(name)
	return t.removed(), nil
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

// expired are the names of the tokens that have been expired for so long at a
// time, in unix nanoseconds, that they are kept no more, sorted.
func (v *View) expired(at int64) []string {
	var out []string
	for _, t := range v.Tokens() {
		if t.Expires != 0 && t.Expires < at/int64(time.Second)-int64(keptExpired/time.Second) {
			out = append(out, t.Name)
		}
	}
	return out
}

// lasts reports whether somebody is admin by a binding for good: not by a token
// that expires.
func (v *View) lasts(b access.Binding) bool {
	kind, name := access.SplitSubject(b.Subject)
	return b.BindsAdmin() && !(kind == access.KindToken && v.tokens[name].Expires != 0)
}

// lastingAdmin reports whether somebody other than the subject is admin for
// good.
func (v *View) lastingAdmin(but string) bool {
	for _, b := range v.roleBindings {
		if b.Subject != but && v.lasts(b) {
			return true
		}
	}
	return false
}

// SomebodyAdmin reports whether somebody is admin, so that roles decide.
func (v *View) SomebodyAdmin() bool {
	for _, b := range v.roleBindings {
		if b.BindsAdmin() {
			return true
		}
	}
	return false
}

// restoreToken takes what is stored, as restoreRole does.
func (v *View) restoreToken(name string, value []byte) error {
	if err := restoreInto(v.tokens, name, value); err != nil {
		return err
	}
	t := v.tokens[name]
	return laterRules(t.Name == name, t.Check())
}
