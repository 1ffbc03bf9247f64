package authz

import (
	"strings"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	"github.com/hostd/hostd/sharding/access"
)

// covers reports whether the rule matches all that the call is about. A list
// that the rule has asks for something that the call says: what is about no
// type, id or command is not covered by a rule about some.
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

// touches reports whether the rule matches any of what the call is about. A state
// is what every query is answered from, so a rule about some queries touches it.
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
			return true // nobody knows which ids it is about
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

// coversAny reports whether one pattern matches all types of an extent.
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

// touchesAny reports whether one matches any type of an extent.
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

// fills reports whether the caller can stand in the prefix. A name that is
// empty, or that has in it what separates it from the rest, could reach into the
// ids of another.
func (p *prefix) fills(who caller) bool {
	return p.variable == "" || who.name != "" && strings.IndexByte(who.name, p.after[0]) < 0
}

// value is what stands in the place of the prefix's variable.
func (p *prefix) value(who caller) string {
	switch p.variable {
	case access.PrincipalVariable:
		return who.kind + ":" + who.name
	case access.NameVariable:
		return who.name
	}
	return ""
}

// begins reports whether an id begins with the prefix.
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

// continues reports whether the prefix goes on from the beginning of an id.
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
