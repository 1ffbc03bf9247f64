package authz

import (
	"slices"
	"strings"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// Extent says how much of something a call is about.
type Extent uint8

// The extents.
const (
	Nothing   Extent = iota // the call is about none
	One                     // it is about one
	Beginning               // it is about all that begin so; all there are where that is empty
)

// Call is what a caller asks for.
type Call struct {
	Verb authv1.Verb
	// Type is an entity type by Types: One, or Beginning with an empty Type for
	// all.
	Types Extent
	Type  string
	// ID is an entity id, or the beginning of some, by IDs.
	IDs Extent
	ID  string
	// Command is that of a command or a query; empty is none.
	Command string
}

// Decision is what becomes of a call.
type Decision uint8

// The decisions.
const (
	Unmatched Decision = iota // no rule allows it
	Denied                    // a rule denies it
	Allowed
)

// Table is what callers may do, as of one revision of the roles. It is
// immutable and safe for concurrent use.
type Table struct {
	revision uint64
	inForce  bool
	rated    bool
	grants   map[subject]*grant
	roles    map[subject][]string
	limits   map[subject]*Limits
	known    map[string]access.Role
}

// subject is whom a binding names.
type subject struct{ kind, name string }

// grant are the rules of a subject, by verb.
type grant [verbs]rules

// verbs is one more than the highest verb of the protos.
const verbs = int(authv1.Verb_SECURITY) + 1

type rules struct{ deny, allow []rule }

// rule is one for a verb. An empty list matches everything.
type rule struct {
	types, commands []pattern
	prefixes        []prefix
}

// pattern is a name, or the beginning of names.
type pattern struct {
	text string
	open bool // more may follow
}

func (p pattern) matches(text string) bool {
	return text == p.text || p.open && strings.HasPrefix(text, p.text)
}

// prefix begins ids: before, then what the variable stands for if there is one,
// then after.
type prefix struct {
	before, after string
	variable      string // access.PrincipalVariable, access.NameVariable or empty
}

// caller is who a rule is matched for.
type caller struct{ kind, name string }

func callerOf(p *principal.Principal) caller { return caller{string(p.Kind), p.Name} }

// Compile makes the table of roles, beside those that are built in, and their
// bindings. It decides nothing unless somebody is admin: until then it is
// not in force. Roles that do not exist have no rules.
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
		t.inForce = t.inForce || b.BindsAdmin()
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

// VerbText is how rules name a verb.
func VerbText(v authv1.Verb) string { return strings.ToLower(v.String()) }

// Revision is that of the roles.
func (t *Table) Revision() uint64 { return t.revision }

// InForce reports whether somebody is admin. Until then whoever is let in has
// all rights.
func (t *Table) InForce() bool { return t.inForce }

// Decide says what becomes of a call. A rule that denies it wins over all that
// allow it, whichever role they are of. SELF is allowed.
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

// Ever reports whether the caller has a rule that allows the verb for anything
// at all, and none that denies it for everything. It is asked where what a call
// is about is not known yet.
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

// Reaches reports whether the caller may do anything at all with a type: whether
// a rule allows some of a verb for it, and none denies all of that.
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

// MaxBeginnings bounds the beginnings of ids that Beginnings gives.
const MaxBeginnings = 16

// Beginnings are those of the ids that the caller may ask about where a call is
// about all of a type's that begin in a way, and is not allowed for all of
// them: sorted, and none of them begins another. There are none where a rule
// denies any of what the call is about, and where there would be more than
// MaxBeginnings.
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
	if len(out) > MaxBeginnings {
		return nil
	}
	return out
}

// beginnings are those of the ids that the rule allows for the type and the
// command of the call.
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

// RolesOf are the names of the roles that the caller has, sorted, each once.
func (t *Table) RolesOf(p *principal.Principal) []string {
	out := slices.Clone(t.roles[subject{string(p.Kind), p.Name}])
	for _, group := range p.Groups {
		out = append(out, t.roles[subject{access.KindGroup, group}]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Names reports whether a subject is the caller, or one of its groups.
func Names(bound string, p *principal.Principal) bool {
	kind, name := access.SplitSubject(bound)
	if kind == access.KindGroup {
		return slices.Contains(p.Groups, name)
	}
	return kind == string(p.Kind) && name == p.Name
}
