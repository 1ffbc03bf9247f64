package schema

// object checks an object.
func (w *walker) object(n *node) bool {
	r := n.object
	if r == nil {
		return w.skip()
	}
	var seen memberSet
	start, fits, count, next := w.pos, true, 0, 0
	for w.pos++; ; count++ {
		if w.space(); count == 0 && w.take('}') {
			break
		}
		fits = w.member(r, &seen, &next) && fits
		if w.fault != noFault || !fits && w.violations == nil {
			return false
		}
		if w.space(); w.take('}') {
			count++
			break
		}
		if !w.take(',') {
			return w.stop(notJSON)
		}
		w.space()
	}
	if seen.lacks(&r.required) {
		w.reportMissing(r, &seen)
		fits = false
	}
	switch {
	case count < r.least:
		w.reportCount("has fewer than %d members", r.least)
		fits = false
	case r.most >= 0 && count > r.most:
		w.reportCount("has more than %d members", r.most)
		fits = false
	}
	if len(r.dependent) > 0 && (fits || w.violations != nil) {
		end := w.pos
		fits = w.dependents(r, &seen, start) && fits
		w.pos = end
	}
	return fits
}

// member checks one member of an object. next is the probable index of the next
// member in the schema.
func (w *walker) member(r *objectRule, seen *memberSet, next *int) bool {
	at := w.pos
	name, escaped, ok := w.name()
	if !ok || !w.spend(1) || escaped && !w.spend(len(name)/8) {
		return false
	}
	if escaped {
		name = unescape(name)
	}
	i, known, fits := r.find(name, *next), false, true
	if r.names != nil {
		fits = w.checkName(r.names, name, at)
	}
	value := w.pos
	var rule *node
	if i >= 0 {
		if *next = i + 1; seen.has(i) {
			w.reportMember(name, "is duplicated")
			fits = false
		}
		seen.set(i)
		known, rule = r.members[i].listed, r.members[i].node
	}
	if known && rule != nil {
		fits = w.memberValue(rule, name) && fits
	} else if known {
		fits = w.skip() && fits
	}
	end := w.pos
	for j := range r.patterns {
		if w.fault != noFault || !fits && w.violations == nil {
			return false
		}
		if w.matches(r.patterns[j].pattern, name) {
			w.pos = value
			fits, known, end = w.memberValue(r.patterns[j].node, name) && fits, true, w.pos
		}
	}
	switch {
	case known:
		w.pos = end
	case r.others == nil, r.others.never && w.Open:
		fits = w.skip() && fits
	case r.others.never:
		w.reportUnknown(r, name)
		return w.pass()
	default:
		fits = w.memberValue(r.others, name) && fits
	}
	return fits
}

// memberValue checks the value of a member.
func (w *walker) memberValue(n *node, name []byte) bool {
	if w.violations == nil {
		return w.value(n)
	}
	w.push(string(name), 0)
	fits := w.value(n)
	w.pop()
	return fits
}

// checkName checks the name of a member, whose opening quote is at at.
func (w *walker) checkName(n *node, name []byte, at int) bool {
	value := w.pos
	w.pos = at
	fits := w.silently(n)
	if w.pos = value; !fits {
		w.reportMember(name, "is not an allowed member name")
	}
	return fits
}

// dependents checks the requirements that follow from the members that are
// present. The object begins at start.
func (w *walker) dependents(r *objectRule, seen *memberSet, start int) bool {
	fits := true
	for i := range r.dependent {
		d := &r.dependent[i]
		if !seen.has(d.member) {
			continue
		}
		if !w.spend(1 + len(d.required)/8) {
			return false
		}
		for _, other := range d.required {
			if !seen.has(other) {
				w.reportDependent(r.members[other].name, r.members[d.member].name)
				fits = false
			}
		}
		if d.node != nil {
			w.pos = start
			fits = w.value(d.node) && fits
		}
		if w.fault != noFault || !fits && w.violations == nil {
			return false
		}
	}
	return fits
}
