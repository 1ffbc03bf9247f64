package authz

import (
	"strings"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/sharding/access"
)

// covers reports whether the rule matches everything that the call is about. If
// the rule lists types, commands or prefixes, the call must have a type,
// command or id that matches: a call about no id, for example, is not covered
// by a rule with prefixes.
func (r *rule) covers(who caller, c *Call) bool {
	if len(r.types) > 0 && !coversAny(r.types, c.Types, c.Type) {
		return false
	}
	if len(r.commands) > 0 && (c.Command == "" || !matchesAny(r.commands, c.Command)) {
		return false
	}
	if len(r.prefixes) == 0 {
		return true
	}
	if c.IDs == Nothing {
		return false
	}
	for i := range r.prefixes {
		if r.prefixes[i].begins(who, c.ID) {
			return true
		}
	}
	return false
}

// touches reports whether the rule matches anything that the call is about. A
// read of a whole state touches rules about any query, because the state may
// contain the answers of all queries.
func (r *rule) touches(who caller, c *Call) bool {
	if len(r.types) > 0 && !touchesAny(r.types, c.Types, c.Type) {
		return false
	}
	state := c.Verb == authv1.Verb_QUERY && c.Command == ""
	if len(r.commands) > 0 && !state && (c.Command == "" || !matchesAny(r.commands, c.Command)) {
		return false
	}
	if len(r.prefixes) == 0 {
		return true
	}
	if c.IDs == Nothing {
		return false
	}
	for i := range r.prefixes {
		p := &r.prefixes[i]
		if !p.fills(who) {
			return true // the rule could apply to any id
		}
		if p.begins(who, c.ID) || c.IDs == Beginning && p.continues(who, c.ID) {
			return true
		}
	}
	return false
}

func matchesAny(patterns []pattern, text string) bool {
	for i := range patterns {
		if patterns[i].matches(text) {
			return true
		}
	}
	return false
}

// coversAny reports whether a single pattern matches all types of the extent.
func coversAny(patterns []pattern, e Extent, text string) bool {
	switch e {
	case One:
		return matchesAny(patterns, text)
	case Beginning:
		for i := range patterns {
			if p := &patterns[i]; p.open && strings.HasPrefix(text, p.text) {
				return true
			}
		}
	}
	return false
}

// touchesAny reports whether a pattern matches any type of the extent.
func touchesAny(patterns []pattern, e Extent, text string) bool {
	switch e {
	case One:
		return matchesAny(patterns, text)
	case Beginning:
		for i := range patterns {
			p := &patterns[i]
			if strings.HasPrefix(p.text, text) || p.open && strings.HasPrefix(text, p.text) {
				return true
			}
		}
	}
	return false
}

// fills reports whether the caller's name can replace the variable of the
// prefix. It cannot if the name is empty or contains the separator that
// follows the variable: such a name could match the ids of another caller.
func (p *prefix) fills(who caller) bool {
	return p.variable == "" || who.name != "" && strings.IndexByte(who.name, p.after[0]) < 0
}

// value returns the value of the prefix's variable for the caller.
func (p *prefix) value(who caller) string {
	switch p.variable {
	case access.PrincipalVariable:
		return who.kind + ":" + who.name
	case access.NameVariable:
		return who.name
	}
	return ""
}

// begins reports whether an id starts with the prefix.
func (p *prefix) begins(who caller, id string) bool {
	if !p.fills(who) {
		return false
	}
	for _, part := range [...]string{p.before, p.value(who), p.after} {
		var ok bool
		if id, ok = strings.CutPrefix(id, part); !ok {
			return false
		}
	}
	return true
}

// continues reports whether the prefix starts with start and is longer.
func (p *prefix) continues(who caller, start string) bool {
	for _, part := range [...]string{p.before, p.value(who), p.after} {
		if len(start) <= len(part) {
			return strings.HasPrefix(part, start)
		}
		var ok bool
		if start, ok = strings.CutPrefix(start, part); !ok {
			return false
		}
	}
	return false
}
