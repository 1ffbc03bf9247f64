package authz

import (
	"slices"
	"strings"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// Extent says how many types or ids a call is about.
type Extent uint8

// Values of Extent.
const (
	Nothing   Extent = iota // none
	One                     // exactly one
	Beginning               // all that start with the given text; all if the text is empty
)

// Call describes a call that a caller wants to make.
type Call struct {
	Verb authv1.Verb
	// Type is an entity type if Types is One. If Types is Beginning, Type is
	// empty, which means all types.
	Types Extent
	Type  string
	// ID is an entity id, or a prefix of entity ids, depending on IDs.
	IDs Extent
	ID  string
	// Command is the name of a command or query; empty means none.
	Command string
}

// Decision is the result of authorizing a call.
type Decision uint8

// Values of Decision.
const (
	Unmatched Decision = iota // no rule allows the call
	Denied                    // a rule denies the call
	Allowed
)

// Table holds the permissions of all callers at one revision of the roles. It
// is immutable and safe for concurrent use.
//
// A call can be about many types and ids: a listing, for example, is about all
// ids with a prefix. So rules with different effects match calls differently. A
// deny rule applies if it touches anything that the call is about. An allow
// rule applies only if it alone covers everything that the call is about;
// several allow rules are never combined. These rules for allow and deny err
// on the safe side. A call about ids that two rules cover only together is
// therefore rejected, and Beginnings returns the prefixes for which separate
// calls would be allowed.
type Table struct {
	revision uint64
	enforced bool
	rated    bool
	grants   map[subject]*grant
	roles    map[subject][]string
	limits   map[subject]*Limits
	known    map[string]access.Role
}

// subject is the subject of a role binding.
type subject struct{ kind, name string }

// grant holds the rules of a subject, by verb.
type grant [verbs]rules

// verbs is one more than the highest verb.
const verbs = int(authv1.Verb_SECURITY) + 1

type rules struct{ deny, allow []rule }

// rule is a compiled rule for one verb. An empty list matches everything.
type rule struct {
	types, commands []pattern
	prefixes        []prefix
}

// pattern matches one name, or all names that start with a text.
type pattern struct {
	text string
	open bool // any suffix may follow
}

func (p pattern) matches(text string) bool {
	return text == p.text || p.open && strings.HasPrefix(text, p.text)
}

// prefix matches ids that start with before, followed by the value of the
// variable if there is one, followed by after.
type prefix struct {
	before, after string
	variable      string // access.PrincipalVariable, access.NameVariable or empty
}

// caller is the caller for whom a rule is matched.
type caller struct{ kind, name string }

func callerOf(p *principal.Principal) caller { return caller{string(p.Kind), p.Name} }

// Compile builds the table of the given roles and bindings, plus the built-in
// roles. The table is not in force unless a binding makes somebody admin. Bound
// roles that do not exist have no rules.
func Compile(revision uint64, roles []access.Role, bindings []access.Binding) *Table {
	t := &Table{
		revision: revision, grants: make(map[subject]*grant, len(bindings)),
		roles: make(map[subject][]string, len(bindings)), limits: make(map[subject]*Limits, len(bindings)),
		known: make(map[string]access.Role, len(roles)),
	}
	known, quotas := map[string]*grant{}, map[string]access.Quotas{}
	for _, r := range append(access.BuiltIn(), roles...) {
		g := new(grant)
		for _, rule := range r.Rules {
			g.add(rule)
		}
		known[r.Name], quotas[r.Name], t.known[r.Name] = g, r.Quotas, r
	}
	for _, b := range bindings {
		t.enforced = t.enforced || b.BindsAdmin()
		var s subject
		s.kind, s.name = access.SplitSubject(b.Subject)
		whole, limits := new(grant), new(Limits)
		for _, name := range b.Roles {
			if g := known[name]; g != nil {
				whole.join(g)
				limits.add(name, quotas[name])
			}
		}
		t.grants[s], t.roles[s], t.limits[s] = whole, slices.Clone(b.Roles), limits
		t.rated = t.rated || limits.rate()
	}
	return t
}

func (g *grant) add(r access.Rule) {
	var compiled rule
	for _, p := range r.Types {
		compiled.types = append(compiled.types, compilePattern(p))
	}
	for _, p := range r.Commands {
		compiled.commands = append(compiled.commands, compilePattern(p))
	}
	for _, p := range r.IDPrefixes {
		compiled.prefixes = append(compiled.prefixes, compilePrefix(p))
	}
	for v := 1; v < verbs; v++ {
		if name := VerbText(authv1.Verb(v)); !slices.Contains(r.Verbs, name) && !slices.Contains(r.Verbs, access.Any) {
			continue
		}
		if r.Effect == access.Allow {
			g[v].allow = append(g[v].allow, compiled)
		} else {
			g[v].deny = append(g[v].deny, compiled)
		}
	}
}

func (g *grant) join(other *grant) {
	for v := range g {
		g[v].deny = append(g[v].deny, other[v].deny...)
		g[v].allow = append(g[v].allow, other[v].allow...)
	}
}

func compilePattern(p string) pattern {
	text, open := strings.CutSuffix(p, access.Any)
	return pattern{text, open}
}

func compilePrefix(p string) prefix {
	for _, variable := range access.Variables {
		if before, after, has := strings.Cut(p, variable); has {
			return prefix{before, after, variable}
		}
	}
	return prefix{before: p}
}

// VerbText returns the name of a verb in rules.
func VerbText(v authv1.Verb) string { return strings.ToLower(v.String()) }

// Revision returns the revision of the roles.
func (t *Table) Revision() uint64 { return t.revision }

// Enforced reports whether somebody is admin. Before that, every accepted caller
// may do everything.
func (t *Table) Enforced() bool { return t.enforced }

// Decide decides a call. A rule that denies it takes precedence over all rules
// that allow it, regardless of their roles. The verb SELF is always allowed.
func (t *Table) Decide(p *principal.Principal, c Call) Decision {
	if c.Verb == authv1.Verb_SELF {
		return Allowed
	}
	if c.Verb <= 0 || int(c.Verb) >= verbs {
		return Unmatched
	}
	made := t.grants[subject{string(p.Kind), p.Name}].decide(callerOf(p), &c)
	for _, group := range p.Groups {
		if made == Denied {
			break
		}
		if d := t.grants[subject{access.KindGroup, group}].decide(callerOf(p), &c); d != Unmatched {
			made = d
		}
	}
	return made
}

func (g *grant) decide(who caller, c *Call) Decision {
	if g == nil {
		return Unmatched
	}
	for i := range g[c.Verb].deny {
		if g[c.Verb].deny[i].touches(who, c) {
			return Denied
		}
	}
	for i := range g[c.Verb].allow {
		if g[c.Verb].allow[i].covers(who, c) {
			return Allowed
		}
	}
	return Unmatched
}

// Ever reports whether any rule allows the verb for anything, and no rule
// denies it for everything. It is used before it is known what a call is about.
func (t *Table) Ever(p *principal.Principal, v authv1.Verb) Decision {
	if v == authv1.Verb_SELF {
		return Allowed
	}
	if v <= 0 || int(v) >= verbs {
		return Unmatched
	}
	made := t.grants[subject{string(p.Kind), p.Name}].ever(v)
	for _, group := range p.Groups {
		if made == Denied {
			break
		}
		if d := t.grants[subject{access.KindGroup, group}].ever(v); d != Unmatched {
			made = d
		}
	}
	return made
}

func (g *grant) ever(v authv1.Verb) Decision {
	if g == nil {
		return Unmatched
	}
	for i := range g[v].deny {
		if r := &g[v].deny[i]; len(r.types)+len(r.prefixes)+len(r.commands) == 0 {
			return Denied
		}
	}
	if len(g[v].allow) > 0 {
		return Allowed
	}
	return Unmatched
}

// Reaches reports whether the caller may do anything with a type: whether a
// rule allows a verb for some of its entities, and no rule denies that verb for
// all of them.
func (t *Table) Reaches(p *principal.Principal, entityType string) bool {
	grants := []*grant{t.grants[subject{string(p.Kind), p.Name}]}
	for _, group := range p.Groups {
		grants = append(grants, t.grants[subject{access.KindGroup, group}])
	}
	about := func(r *rule) bool { return len(r.types) == 0 || matchesAny(r.types, entityType) }
	for v := range verbs {
		allowed, denied := false, false
		for _, g := range grants {
			if g == nil {
				continue
			}
			for i := range g[v].allow {
				allowed = allowed || about(&g[v].allow[i])
			}
			for i := range g[v].deny {
				r := &g[v].deny[i]
				denied = denied || len(r.prefixes)+len(r.commands) == 0 && about(r)
			}
		}
		if allowed && !denied {
			return true
		}
	}
	return false
}

// maxBeginnings bounds the number of prefixes that Beginnings returns.
const maxBeginnings = 16

// Beginnings returns the prefixes of the ids that the caller may access, if a
// call is about all ids of a type with a certain prefix and isn't allowed for
// all of them. The result is sorted, and no element is a prefix of another. It
// is nil if a rule denies anything that the call is about, or if there would be
// more than maxBeginnings elements.
func (t *Table) Beginnings(p *principal.Principal, c Call) []string {
	if c.Types != One || c.IDs != Beginning || c.Verb <= 0 || int(c.Verb) >= verbs {
		return nil
	}
	var all []string
	grants := []*grant{t.grants[subject{string(p.Kind), p.Name}]}
	for _, group := range p.Groups {
		grants = append(grants, t.grants[subject{access.KindGroup, group}])
	}
	for _, g := range grants {
		if g == nil {
			continue
		}
		for i := range g[c.Verb].deny {
			if g[c.Verb].deny[i].touches(callerOf(p), &c) {
				return nil
			}
		}
		for i := range g[c.Verb].allow {
			for _, b := range g[c.Verb].allow[i].beginnings(callerOf(p), c) {
				if strings.HasPrefix(b, c.ID) {
					all = append(all, b)
				}
			}
		}
	}
	slices.Sort(all)
	out := all[:0]
	for _, b := range all {
		if len(out) == 0 || !strings.HasPrefix(b, out[len(out)-1]) {
			out = append(out, b)
		}
	}
	if len(out) > maxBeginnings {
		return nil
	}
	return out
}

// beginnings returns the prefixes of the ids for which the rule covers the
// call.
func (r *rule) beginnings(who caller, c Call) []string {
	var out []string
	for i := range r.prefixes {
		p := &r.prefixes[i]
		if !p.fills(who) {
			continue
		}
		c.ID = p.before + p.value(who) + p.after
		if r.covers(who, &c) {
			out = append(out, c.ID)
		}
	}
	return out
}

// RolesOf returns the names of the caller's roles, sorted and without
// duplicates.
func (t *Table) RolesOf(p *principal.Principal) []string {
	out := slices.Clone(t.roles[subject{string(p.Kind), p.Name}])
	for _, group := range p.Groups {
		out = append(out, t.roles[subject{access.KindGroup, group}]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Names reports whether a subject is the caller or one of its groups.
func Names(bound string, p *principal.Principal) bool {
	kind, name := access.SplitSubject(bound)
	if kind == access.KindGroup {
		return slices.Contains(p.Groups, name)
	}
	return kind == string(p.Kind) && name == p.Name
}
