package access

import (
	"errors"
	"slices"
	"strings"
)

// Bounds of what is kept. A change over one of them is ErrInvalid.
const (
	MaxRoles        = 256 // beside those that are built in
	MaxBindings     = 4096
	MaxBytes        = 1 << 20 // of all roles and bindings, as Size counts them
	MaxRules        = 64      // of a role
	MaxRuleEntries  = 64      // of each list of a rule
	MaxBindingRoles = 16      // of a binding
	MaxNameBytes    = 64      // of a role's name
	MaxSubjectBytes = 288     // with its kind
	MaxPatternBytes = 256
)

// ErrInvalid: a role or a binding is malformed, or is over a bound.
var ErrInvalid = errors.New("access")

// Verbs that a rule may name. They are those of hostd.auth.v1, but for SELF,
// which nobody is refused.
const (
	Invoke   = "invoke"
	Query    = "query"
	Read     = "read"
	Operate  = "operate"
	Deploy   = "deploy"
	Download = "download"
	Settings = "settings"
	Admin    = "admin"
	Export   = "export"
	Security = "security"
)

// Verbs are all of them.
var Verbs = []string{Invoke, Query, Read, Operate, Deploy, Download, Settings, Admin, Export, Security}

// Any is every verb in a rule that allows, and every text in a pattern.
const Any = "*"

// Effect is what a rule does to the calls that it matches.
type Effect string

// The effects. Whatever is denied is refused, whatever allows it.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
)

// Rule matches calls: by every list that it has.
type Rule struct {
	Effect Effect   `json:"effect"`
	Verbs  []string `json:"verbs"`
	// Types are names of entity types, or beginnings of them with * at the end.
	// Empty is all, and calls that are about no type.
	Types []string `json:"types,omitempty"`
	// IDPrefixes begin the ids of entities; one of Variables in one stands for the
	// caller. Empty is all, and calls that are about no entity.
	IDPrefixes []string `json:"idPrefixes,omitempty"`
	// Commands are names of commands and queries, or beginnings of them with * at
	// the end. Empty is all, and calls without one.
	Commands []string `json:"commands,omitempty"`
}

// What stands for the caller in a prefix of ids.
const (
	// PrincipalVariable is the caller's kind and name, such as jwt:alice; from
	// sharding.LevelPrincipalVariable on.
	PrincipalVariable = "${principal}"
	// NameVariable is the caller's name alone. Two callers of different kinds may
	// have the same, so a role with it is only for subjects of one kind.
	NameVariable = "${principal.name}"
)

// Variables are all that there are.
var Variables = [...]string{PrincipalVariable, NameVariable}

// Role is a list of rules with a name, and what it says of quotas.
type Role struct {
	Name   string `json:"name"`
	Rules  []Rule `json:"rules,omitempty"`
	Quotas Quotas `json:"quotas,omitzero"`
	// Revision is that of all roles and bindings when this one was put; 0 of one
	// that is built in.
	Revision uint64 `json:"revision,omitempty"`
}

// Kinds of subjects, before the colon. Anonymous has no colon and no name.
const (
	KindToken       = "token"
	KindJWT         = "jwt"
	KindCertificate = "certificate"
	KindGroup       = "group"
	KindAnonymous   = "anonymous"
)

// Binding gives a subject roles. A subject has one binding at most.
type Binding struct {
	// Subject is token:NAME, jwt:NAME, certificate:NAME, group:NAME or
	// anonymous.
	Subject  string   `json:"subject"`
	Roles    []string `json:"roles"`
	Revision uint64   `json:"revision,omitempty"`
}

// RoleAdmin is the role that may do everything. While no binding has it, roles
// decide nothing.
const RoleAdmin = "admin"

// allows is a rule of a role that is built in.
func allows(verbs ...string) []Rule { return []Rule{{Effect: Allow, Verbs: verbs}} }

// BuiltIn are the roles that every cluster has, by name. They are made anew for
// each caller.
func BuiltIn() []Role {
	return []Role{
		{Name: RoleAdmin, Rules: allows(Any), Quotas: UnlimitedQuotas()},
		{Name: "deployer", Rules: allows(Read, Deploy, Download)},
		{Name: "invoker", Rules: allows(Invoke, Query)},
		{Name: "operator", Rules: allows(Query, Read, Operate, Settings)},
		{Name: "viewer", Rules: allows(Query, Read)},
	}
}

// IsBuiltIn reports whether a role of that name is built in.
func IsBuiltIn(name string) bool {
	return slices.ContainsFunc(BuiltIn(), func(r Role) bool { return r.Name == name })
}

// SplitSubject returns the kind and the name of a subject.
func SplitSubject(subject string) (kind, name string) {
	kind, name, _ = strings.Cut(subject, ":")
	return kind, name
}

// BindsAdmin reports whether the binding has RoleAdmin.
func (b Binding) BindsAdmin() bool { return slices.Contains(b.Roles, RoleAdmin) }

// entryBytes is what each text of a role or a binding counts for beside its own
// bytes.
const entryBytes = 16

func sizeOf(texts []string) int {
	n := 0
	for _, t := range texts {
		n += len(t) + entryBytes
	}
	return n
}

// Size is what the role counts for in MaxBytes.
func (r Role) Size() int {
	n := len(r.Name) + entryBytes
	for _, rule := range r.Rules {
		n += entryBytes + sizeOf(rule.Verbs) + sizeOf(rule.Types) + sizeOf(rule.IDPrefixes) + sizeOf(rule.Commands)
	}
	if r.Quotas != (Quotas{}) {
		n += NumQuotas * entryBytes
	}
	return n
}

// Size is what the binding counts for in MaxBytes.
func (b Binding) Size() int { return len(b.Subject) + entryBytes + sizeOf(b.Roles) }

// Uses reports whether a prefix of the role has the variable.
func (r Role) Uses(variable string) bool {
	return slices.ContainsFunc(r.Rules, func(rule Rule) bool {
		return slices.ContainsFunc(rule.IDPrefixes, func(p string) bool { return strings.Contains(p, variable) })
	})
}

// CallerKind is the kind of the callers that a subject names: those of a group
// have signed tokens.
func CallerKind(subject string) string {
	if kind, _ := SplitSubject(subject); kind != KindGroup {
		return kind
	}
	return KindJWT
}
