package authz

import "strings"

// covers reports whether the rule matches all that the call is about. A list
// that the rule has asks for something that the call says: what is about no
// type, id or command is not covered by a rule about some.
func (r *rule) covers(name string, c *Call) bool {
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
		if r.prefixes[i].begins(name, c.ID) {
			return true
		}
	}
	return false
}

// touches reports whether the rule matches any of what the call is about.
func (r *rule) touches(name string, c *Call) bool {
	if len(r.types) > 0 && !touchesAny(r.types, c.Types, c.Type) {
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
		p := &r.prefixes[i]
		if !p.fills(name) {
			return true // nobody knows which ids it is about
		}
		if p.begins(name, c.ID) || c.IDs == Beginning && p.continues(name, c.ID) {
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

// fills reports whether the name can stand in the prefix. One that is empty, or
// that has in it what separates it from the rest, could reach into the ids of
// another.
func (p *prefix) fills(name string) bool {
	return !p.variable || name != "" && strings.IndexByte(name, p.after[0]) < 0
}

// begins reports whether an id begins with the prefix.
func (p *prefix) begins(name, id string) bool {
	if !p.variable {
		return strings.HasPrefix(id, p.before)
	}
	if !p.fills(name) {
		return false
	}
	rest, ok := strings.CutPrefix(id, p.before)
	if !ok {
		return false
	}
	rest, ok = strings.CutPrefix(rest, name)
	return ok && strings.HasPrefix(rest, p.after)
}

// continues reports whether the prefix goes on from the beginning of an id.
func (p *prefix) continues(name, start string) bool {
	if !p.variable {
		name = ""
	}
	for _, part := range [...]string{p.before, name, p.after} {
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
