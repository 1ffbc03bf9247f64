package authz

import (
	"slices"
	"strings"

	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
)

// maxCompared bounds the number of comparisons in one call of MayGive.
const maxCompared = 1 << 20

// MayGive reports whether the caller may replace role was by role. Nobody may
// grant permissions that it doesn't have itself: for each verb of each allow
// rule, a single rule of the caller must allow everything that the new rule
// allows, and no rule may deny any of it. Removing a deny rule counts as
// granting what it denied. An admin may grant everything.
//
// MayGive returns false if the comparison would need too much time.
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

// Role returns the role with this name.
func (t *Table) Role(name string) (access.Role, bool) {
	r, ok := t.known[name]
	return r, ok
}

// RolesOfSubject returns the names of the roles bound to a subject.
func (t *Table) RolesOfSubject(of string) []string {
	var s subject
	s.kind, s.name = access.SplitSubject(of)
	return t.roles[s]
}

// comparison compares rules with a bounded number of steps.
type comparison struct {
	who  caller // the caller that holds the own rules
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

// same reports whether two rules match the same calls.
func (c *comparison) same(a, b *rule) bool {
	return c.spend(1, len(a.types)+len(a.commands)+len(a.prefixes)+1) &&
		slices.Equal(a.types, b.types) && slices.Equal(a.commands, b.commands) && slices.Equal(a.prefixes, b.prefixes)
}

// holds reports whether a rule of the caller matches every call that the given
// rule can match for any caller.
func (c *comparison) holds(own, given *rule) bool {
	if !c.spend(len(own.types)+1, len(given.types)+1) || !c.spend(len(own.commands)+1, len(given.commands)+1) || !c.spend(len(own.prefixes)+1, len(given.prefixes)+1) {
		return false
	}
	return allHeld(own.types, given.types, (*pattern).holds) && allHeld(own.commands, given.commands, (*pattern).holds) &&
		allHeld(own.prefixes, given.prefixes, func(own, given *prefix) bool {
			return own.fills(c.who) && strings.HasPrefix(given.commonBeginning(), own.before+own.value(c.who)+own.after)
		})
}

// meets reports whether a deny rule of the caller matches any call that the
// given rule can match for any caller.
func (c *comparison) meets(own, given *rule) bool {
	if !c.spend(len(own.types)+1, len(given.types)+1) || !c.spend(len(own.commands)+1, len(given.commands)+1) || !c.spend(len(own.prefixes)+1, len(given.prefixes)+1) {
		return true
	}
	return anyMeets(own.types, given.types, (*pattern).meets) && anyMeets(own.commands, given.commands, (*pattern).meets) &&
		anyMeets(own.prefixes, given.prefixes, func(own, given *prefix) bool {
			if !own.fills(c.who) {
				return true // the rule could apply to any id
			}
			start := own.before + own.value(c.who) + own.after
			return strings.HasPrefix(start, given.commonBeginning()) || strings.HasPrefix(given.commonBeginning(), start)
		})
}

// allHeld reports whether each element of given is held by an element of own.
// An empty list stands for everything.
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

// anyMeets reports whether any element of own meets one of given. An empty list
// stands for everything.
func anyMeets[T any](own, given []T, meets func(own, given *T) bool) bool {
	for i := range own {
		if slices.ContainsFunc(given, func(g T) bool { return meets(&own[i], &g) }) {
			return true
		}
	}
	return len(own) == 0 || len(given) == 0
}

// holds reports whether the pattern matches everything that other matches.
func (p *pattern) holds(other *pattern) bool {
	return p.matches(other.text) && (p.open || !other.open)
}

// meets reports whether there is a text that both patterns match.
func (p *pattern) meets(other *pattern) bool {
	return p.matches(other.text) || other.matches(p.text)
}

// commonBeginning returns the beginning that all ids with the prefix share, for any
// caller.
func (p *prefix) commonBeginning() string {
	if p.variable == "" {
		return p.before + p.after
	}
	return p.before
}
