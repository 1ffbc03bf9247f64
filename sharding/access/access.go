package access

import (
	"errors"
	"slices"
	"strings"
)

// Limits. A change that exceeds one of them fails with ErrInvalid.
const (
	MaxRoles        = 256 // not counting built-in roles
	MaxBindings     = 4096
	MaxBytes        = 1 << 20 // total of all roles and bindings, as counted by Size
	MaxRules        = 64      // rules per role
	MaxRuleEntries  = 64      // entries in each list of a rule
	MaxBindingRoles = 16      // roles per binding
	MaxNameBytes    = 64      // length of a role name
	MaxSubjectBytes = 288     // length of a subject, including its kind
	MaxPatternBytes = 256
)

// ErrInvalid is returned for a role, binding, quota or token that is malformed
// or exceeds a limit.
var ErrInvalid = errors.New("access")

// Verbs that a rule can name: the verbs of hostd.auth.v1, except SELF, which is
// always allowed.
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

// Verbs lists all verbs.
var Verbs = []string{Invoke, Query, Read, Operate, Deploy, Download, Settings, Admin, Export, Security}

// Any matches every verb in an allow rule, and any text in a pattern.
const Any = "*"

// Effect says whether a rule allows or denies the calls that it matches.
type Effect string

// The effects. A matching deny rule always wins over allow rules.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
)

// Rule matches a call if each of its non-empty lists matches.
type Rule struct {
	Effect Effect   `json:"effect"`
	Verbs  []string `json:"verbs"`
	// Types are entity type names, or prefixes of them followed by *. If empty,
	// the rule matches all types, and calls that concern no type.
	Types []string `json:"types,omitempty"`
	// IDPrefixes are prefixes of entity ids; a variable (see Variables) in a
	// prefix stands for the caller. If empty, the rule matches all ids, and
	// calls that concern no entity.
	IDPrefixes []string `json:"idPrefixes,omitempty"`
	// Commands are names of commands and queries, or prefixes of them followed
	// by *. If empty, the rule matches all commands, and calls without a
	// command.
	Commands []string `json:"commands,omitempty"`
}

// Variables for the caller in id prefixes.
const (
	// PrincipalVariable expands to the caller's kind and name, such as
	// jwt:alice. It requires sharding.VersionPrincipalVariable.
	PrincipalVariable = "${principal}"
	// NameVariable expands to the caller's name alone. Because callers of
	// different kinds may share a name, a role that uses it may be bound to
	// subjects of one kind only.
	NameVariable = "${principal.name}"
)

// Variables lists all variables.
var Variables = [...]string{PrincipalVariable, NameVariable}

// Role is a named list of rules, with optional quotas.
type Role struct {
	Name   string `json:"name"`
	Rules  []Rule `json:"rules,omitempty"`
	Quotas Quotas `json:"quotas,omitzero"`
	// Revision is the revision of the set of roles and bindings at which this
	// role was last written; 0 for built-in roles.
	Revision uint64 `json:"revision,omitempty"`
}

// Subject kinds, the part of a subject before the colon. KindAnonymous is used
// alone, without a colon or a name.
const (
	KindToken       = "token"
	KindJWT         = "jwt"
	KindCertificate = "certificate"
	KindGroup       = "group"
	KindAnonymous   = "anonymous"
)

// Binding assigns roles to a subject. A subject has at most one binding.
type Binding struct {
	// Subject is token:NAME, jwt:NAME, certificate:NAME, group:NAME or
	// anonymous.
	Subject  string   `json:"subject"`
	Roles    []string `json:"roles"`
	Revision uint64   `json:"revision,omitempty"`
}

// RoleAdmin is the role that may do everything. As long as no binding includes
// it, role checks are off.
const RoleAdmin = "admin"

// allows returns the rules of a built-in role that allows the verbs.
func allows(verbs ...string) []Rule { return []Rule{{Effect: Allow, Verbs: verbs}} }

// BuiltIn returns the roles that every cluster has, sorted by name. Each call
// returns a new slice.
func BuiltIn() []Role {
	return []Role{
		{Name: RoleAdmin, Rules: allows(Any), Quotas: unlimitedQuotas()},
		{Name: "deployer", Rules: allows(Read, Deploy, Download)},
		{Name: "invoker", Rules: allows(Invoke, Query)},
		{Name: "operator", Rules: allows(Query, Read, Operate, Settings)},
		{Name: "viewer", Rules: allows(Query, Read)},
	}
}

// IsBuiltIn reports whether the name is that of a built-in role.
func IsBuiltIn(name string) bool {
	return slices.ContainsFunc(BuiltIn(), func(r Role) bool { return r.Name == name })
}

// SplitSubject splits a subject into its kind and its name.
func SplitSubject(subject string) (kind, name string) {
	kind, name, _ = strings.Cut(subject, ":")
	return kind, name
}

// BindsAdmin reports whether the binding includes RoleAdmin.
func (b Binding) BindsAdmin() bool { return slices.Contains(b.Roles, RoleAdmin) }

// entryBytes is the fixed overhead counted for each string of a role or
// binding.
const entryBytes = 16

func sizeOf(texts []string) int {
	n := 0
	for _, t := range texts {
		n += len(t) + entryBytes
	}
	return n
}

// Size returns the bytes that the role counts toward MaxBytes.
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

// Size returns the bytes that the binding counts toward MaxBytes.
func (b Binding) Size() int { return len(b.Subject) + entryBytes + sizeOf(b.Roles) }

// Uses reports whether an id prefix in the role contains the variable.
func (r Role) Uses(variable string) bool {
	return slices.ContainsFunc(r.Rules, func(rule Rule) bool {
		return slices.ContainsFunc(rule.IDPrefixes, func(p string) bool { return strings.Contains(p, variable) })
	})
}

// CallerKind returns the kind of caller that a subject matches. For a group it
// returns KindJWT, because groups come from the claims of JWTs.
func CallerKind(subject string) string {
	if kind, _ := SplitSubject(subject); kind != KindGroup {
		return kind
	}
	return KindJWT
}
