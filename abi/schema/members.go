package schema

import (
	"maps"
	"slices"
)

// scanned is the number of members up to which a name is found by a linear
// search.
const scanned = 8

func (c *compiler) object(p place, m map[string]any, n *node) error {
	r := objectRule{most: -1}
	some, err := counts(p, m, "minProperties", &r.least, "maxProperties", &r.most)
	if err != nil {
		return err
	}
	listed, err := c.each(p, m, "properties")
	if err != nil {
		return err
	}
	if r.needed, err = namesOf(p.member("required"), m, "required"); err != nil {
		return err
	}
	follows, err := lists(p, m, "dependentRequired")
	if err != nil {
		return err
	}
	schemas, err := c.each(p, m, "dependentSchemas")
	if err != nil {
		return err
	}
	patterns, err := c.each(p, m, "patternProperties")
	if err != nil {
		return err
	}
	for _, text := range slices.Sorted(maps.Keys(patterns)) {
		compiled, err := c.pattern(p.member("patternProperties").member(text), text)
		if err != nil {
			return err
		}
		r.patterns = append(r.patterns, patternMember{compiled, patterns[text]})
	}
	if r.others, err = c.one(p, m, "additionalProperties"); err != nil {
		return err
	}
	if r.names, err = c.one(p, m, "propertyNames"); err != nil {
		return err
	}
	c.weight += len(listed)
	if err := r.index(p, listed, follows, schemas); err != nil {
		return err
	}
	if some || len(r.members) > 0 || r.patterns != nil || r.others != nil || r.names != nil {
		n.object = &r
	}
	return nil
}

// index assigns a number to each member that the schema names anywhere.
func (r *objectRule) index(p place, listed map[string]*node, follows map[string][]string, schemas map[string]*node) error {
	named := map[string]bool{}
	for name := range listed {
		named[name] = true
	}
	for name := range schemas {
		named[name] = true
	}
	for _, name := range r.needed {
		named[name] = true
	}
	for name, list := range follows {
		named[name] = true
		for _, other := range list {
			named[other] = true
		}
	}
	if len(named) > MaxMembers {
		return p.fault("names %d members, limit %d", len(named), MaxMembers)
	}
	number := make(map[string]int, len(named))
	for _, name := range slices.Sorted(maps.Keys(named)) {
		number[name] = len(r.members)
		node, isListed := listed[name]
		r.members = append(r.members, member{name, node, isListed})
	}
	if len(r.members) > scanned {
		r.byName = number
	}
	for _, name := range r.needed {
		r.required.set(number[name])
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		list, isFollowed := follows[name]
		if !isFollowed && schemas[name] == nil {
			continue
		}
		d := dependent{member: number[name], node: schemas[name]}
		for _, other := range list {
			d.required = append(d.required, number[other])
		}
		r.dependent = append(r.dependent, d)
	}
	return nil
}

func namesOf(p place, m map[string]any, name string) ([]string, error) {
	v, there := m[name]
	if !there {
		return nil, nil
	}
	list, is := v.([]any)
	if !is {
		return nil, p.fault("is not a list of names")
	}
	var out []string
	for _, one := range list {
		text, is := one.(string)
		if !is || slices.Contains(out, text) {
			return nil, p.fault("is not a list of distinct names")
		}
		if out = append(out, text); len(out) > MaxMembers {
			return nil, p.fault("has %d names, limit %d", len(list), MaxMembers)
		}
	}
	slices.Sort(out)
	return out, nil
}

func lists(p place, m map[string]any, name string) (map[string][]string, error) {
	v, there := m[name]
	if !there {
		return nil, nil
	}
	members, is := v.(map[string]any)
	if !is {
		return nil, p.member(name).fault("is not an object")
	}
	out := make(map[string][]string, len(members))
	for _, key := range slices.Sorted(maps.Keys(members)) {
		list, err := namesOf(p.member(name).member(key), members, key)
		if err != nil {
			return nil, err
		}
		out[key] = list
	}
	return out, nil
}
