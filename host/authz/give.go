package authz

import (
	"slices"
	"strings"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// maxCompared bounds the comparisons of one question whether a caller may give
// rules.
const maxCompared = 1 << 20

// MayGive reports whether the caller may give others a role in the place of
// another one: nobody gives what it does not hold. For each verb of a rule one
// rule of the caller's must allow all that it allows, and none may deny any of
// it. A deny rule that the role has no more is given like what it denied. Who
// is admin gives everything.
//
// Rules that would take too long to compare are not held.
func (t *Table) MayGive(p *principal.Principal, role, was access.Role) bool {
	grants := []*grant{t.grants[subject{string(p.Kind), p.Name}]}
	for _, group := range p.Groups {
		grants = append(grants, t.grants[subject{access.KindGroup, group}])
	}
	if slices.Contains(t.RolesOf(p), access.RoleAdmin) {
		return true
	}
	var held, becomes, before grant
	for _, g := range grants {
		if g != nil {
			held.join(g)
		}
	}
	for _, r := range role.Rules {
		becomes.add(r)
	}
	for _, r := range was.Rules {
		before.add(r)
	}
	c := comparison{who: callerOf(p), left: maxCompared}
	for v := range becomes {
		given := slices.Clone(becomes[v].allow)
		for i := range before[v].deny {
			if !c.any(becomes[v].deny, func(r *rule) bool { return c.same(r, &before[v].deny[i]) }) {
				given = append(given, before[v].deny[i])
			}
		}
		for i := range given {
			if c.any(held[v].deny, func(r *rule) bool { return c.meets(r, &given[i]) }) ||
				!c.any(held[v].allow, func(r *rule) bool { return c.holds(r, &given[i]) }) {
				return false
			}
		}
	}
	return c.left > 0
}

// Role returns what is known of a role.
func (t *Table) Role(name string) (access.Role, bool) {
	r, ok := t.known[name]
	return r, ok
}

// Bound are the names of the roles that a subject has.
func (t *Table) Bound(of string) []string {
	var s subject
	s.kind, s.name = access.SplitSubject(of)
	return t.roles[s]
}

// comparison compares rules, as long as that may take.
type comparison struct {
	who  caller // who holds a rule
	left int
}

func (c *comparison) any(rules []rule, is func(*rule) bool) bool {
	for i := range rules {
		if c.left--; c.left <= 0 {
			return false
		}
		if is(&rules[i]) {
			return true
		}
	}
	return false
}

func (c *comparison) spend(a, b int) bool {
	c.left -= a * b
	return c.left > 0
}

// same reports whether two rules are for the same calls.
func (c *comparison) same(a, b *rule) bool {
	return c.spend(1, len(a.types)+len(a.commands)+len(a.prefixes)+1) &&
		slices.Equal(a.types, b.types) && slices.Equal(a.commands, b.commands) && slices.Equal(a.prefixes, b.prefixes)
}

// holds reports whether a rule of the caller's matches all calls that one
// matches for whoever is given it.
func (c *comparison) holds(own, given *rule) bool {
	if !c.spend(len(own.types)+1, len(given.types)+1) || !c.spend(len(own.commands)+1, len(given.commands)+1) || !c.spend(len(own.prefixes)+1, len(given.prefixes)+1) {
		return false
	}
	return allHeld(own.types, given.types, (*pattern).holds) && allHeld(own.commands, given.commands, (*pattern).holds) &&
		allHeld(own.prefixes, given.prefixes, func(own, given *prefix) bool {
			return own.fills(c.who) && strings.HasPrefix(given.fixed(), own.before+own.value(c.who)+own.after)
		})
}

// meets reports whether a rule that denies the caller something matches any
// call that one may match for whoever is given it.
func (c *comparison) meets(own, given *rule) bool {
	if !c.spend(len(own.types)+1, len(given.types)+1) || !c.spend(len(own.commands)+1, len(given.commands)+1) || !c.spend(len(own.prefixes)+1, len(given.prefixes)+1) {
		return true
	}
	return anyMeets(own.types, given.types, (*pattern).meets) && anyMeets(own.commands, given.commands, (*pattern).meets) &&
		anyMeets(own.prefixes, given.prefixes, func(own, given *prefix) bool {
			if !own.fills(c.who) {
				return true // nobody knows which ids it is about
			}
			start := own.before + own.value(c.who) + own.after
			return strings.HasPrefix(start, given.fixed()) || strings.HasPrefix(given.fixed(), start)
		})
}

// allHeld reports whether each of a list that is given is held by one of
// another; an empty list is everything.
func allHeld[T any](own, given []T, holds func(own, given *T) bool) bool {
	if len(own) == 0 {
		return true
	}
	for i := range given {
		if !slices.ContainsFunc(own, func(o T) bool { return holds(&o, &given[i]) }) {
			return false
		}
	}
	return len(given) > 0
}

// anyMeets reports whether one of a list meets one of another; an empty list is
// everything.
func anyMeets[T any](own, given []T, meets func(own, given *T) bool) bool {
	for i := range own {
		if slices.ContainsFunc(given, func(g T) bool { return meets(&own[i], &g) }) {
			return true
		}
	}
	return len(own) == 0 || len(given) == 0
}

// holds reports whether the pattern matches all that another one matches.
func (p *pattern) holds(other *pattern) bool {
	return p.matches(other.text) && (p.open || !other.open)
}

// meets reports whether the pattern matches any that another one matches.
func (p *pattern) meets(other *pattern) bool {
	return p.matches(other.text) || other.matches(p.text)
}

// fixed is how all ids begin that the prefix is about, whoever calls.
func (p *prefix) fixed() string {
	if p.variable == "" {
		return p.before + p.after
	}
	return p.before
}
