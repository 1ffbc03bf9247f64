package schema

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
)

// report collects the violations of a text.
type report struct {
	path       []segment
	violations []Violation
	compares   int // remaining steps for finding similar names
}

type segment struct {
	name string // name of a member; empty for an item
	item int
	is   bool // the element is an item of a list
}

// explain walks the text again and collects its violations, using the steps
// that the first walk has left. It may end early, at MaxViolations or when the
// steps are used up, because the first walk has already shown that the text
// does not match.
func (s *Schema) explain(w walker) ([]Violation, walker) {
	if w.fault == tooLong {
		return []Violation{{Text: faultTexts[w.fault]}}, w
	}
	w.pos, w.depth, w.fault, w.violations = 0, 0, noFault, &report{compares: w.left / 2}
	w.whole(s.root)
	out := w.violations.violations
	if w.fault == notJSON || w.fault == tooDeep {
		out = append(out[:min(len(out), MaxViolations-1)], Violation{Text: faultTexts[w.fault]})
	}
	if len(out) == 0 {
		out = []Violation{{Text: "does not match the schema"}}
	}
	return out, w
}

func (w *walker) push(name string, item int) {
	if w.violations != nil {
		w.violations.path = append(w.violations.path, segment{name, item, name == ""})
	}
}

func (w *walker) pop() {
	if w.violations != nil {
		w.violations.path = w.violations.path[:len(w.violations.path)-1]
	}
}

// pathMost is the maximum number of path elements that are shown.
const pathMost = 16

func (r *report) field() string {
	path := ""
	for i, s := range r.path {
		switch {
		case i == pathMost:
			return path + "..."
		case s.is:
			path += "[" + strconv.Itoa(s.item) + "]"
		default:
			path = joinPath(path, s.name)
		}
	}
	return path
}

func (r *report) add(field, text string) {
	v := Violation{field, text}
	if len(r.violations) < MaxViolations && !slices.Contains(r.violations, v) {
		r.violations = append(r.violations, v)
	}
}

// reportSteps is the cost of a violation's text, in steps.
const reportSteps = 256

// report reports that the current value violates the schema.
func (w *walker) report(text string) {
	if w.violations == nil || w.fault != noFault || !w.spend(reportSteps) {
		return
	}
	if w.violations.add(w.violations.field(), text); len(w.violations.violations) == MaxViolations {
		w.stop(enough)
	}
}

// isReporting reports whether a violation would be recorded now, so that its text
// is needed.
func (w *walker) isReporting() bool { return w.violations != nil && w.fault == noFault }

func (w *walker) reportBound(text string, bound *number) {
	if w.isReporting() {
		w.report(text + bound.String())
	}
}

func (w *walker) reportPattern(p *pattern) {
	if w.isReporting() {
		w.report("does not match " + quoteName(p.text))
	}
}

func (w *walker) reportDependent(name, with string) {
	if w.isReporting() {
		w.reportMember([]byte(name), "is missing, but required with "+quoteName(with))
	}
}

func (w *walker) reportCount(format string, n int) {
	if w.isReporting() {
		w.report(fmt.Sprintf(format, n))
	}
}

// reportMember reports that a member of the current object violates the schema.
func (w *walker) reportMember(name []byte, text string) {
	if w.isReporting() {
		w.push(string(name), 0)
		w.report(text)
		w.pop()
	}
}

func (w *walker) reportUnknown(r *objectRule, name []byte) {
	if !w.isReporting() {
		return
	}
	text := "unknown member " + quoteName(string(name))
	if nearest, found := w.nearest(name, r.listedMembers()); found {
		text += ", did you mean " + quoteName(nearest) + "?"
	} else if names := joinNames(r.listedMembers()); names != "" {
		text += ", known members are " + names
	} else {
		text += ", there are no known members"
	}
	w.reportMember(name, text)
}

// listedMembers returns the names of the members that the schema describes, in order.
func (r *objectRule) listedMembers() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range r.members {
			if r.members[i].listed && !yield(r.members[i].name) {
				return
			}
		}
	}
}

// nearest is Nearest, as long as steps for comparing names are left.
func (w *walker) nearest(name []byte, names iter.Seq[string]) (string, bool) {
	if len(name) > nearestMost {
		return "", false
	}
	found, steps := nearest(string(name), names, w.violations.compares)
	w.violations.compares -= steps
	return found, w.spend(steps) && found != ""
}

func (w *walker) reportMissing(r *objectRule, seen *memberSet) {
	for i, m := range r.members {
		if !w.isReporting() {
			return
		}
		if r.required.has(i) && !seen.has(i) {
			w.reportMember([]byte(m.name), "is missing")
		}
	}
}

func (w *walker) reportKind(n *node, k kinds) {
	if w.isReporting() {
		w.report("is " + k.text() + ", not " + n.kinds.text())
	}
}

// text returns the names of the types.
func (k kinds) text() string {
	if k&kindNumber != 0 {
		k &^= kindInteger
	}
	out := ""
	for _, one := range []struct {
		kind kinds
		text string
	}{
		{kindObject, "an object"}, {kindArray, "a list"}, {kindString, "a string"}, {kindNumber, "a number"}, {kindInteger, "an integer"}, {kindBool, "true or false"}, {kindNull, "null"},
	} {
		if k&one.kind == 0 {
			continue
		}
		if out != "" {
			out += " or "
		}
		out += one.text
	}
	return out
}

func (w *walker) reportChoice(c *choice, given []byte) {
	if !w.isReporting() {
		return
	}
	text := "is not one of " + joinNames(slices.Values(c.names))
	if len(c.numbers)+len(c.names) == 0 || len(c.numbers) > 0 {
		text = "is not one of the allowed values"
	}
	if nearest, found := w.nearest(given, slices.Values(c.names)); found {
		text += ", did you mean " + quoteName(nearest) + "?"
	}
	w.report(text)
}

// reportNone reports that none of several schemas matches. Among the schemas
// that accept the type of the value, it reports the violations of the schema
// that has the fewest.
func (w *walker) reportNone(list []*node, start int) {
	if !w.isReporting() {
		return
	}
	outer, depth, here := w.violations, w.depth, w.violations.field()
	var best []Violation
	same := false
	for _, each := range list {
		if !w.spend(reportSteps + len(outer.path)) {
			return
		}
		w.violations = &report{path: slices.Clone(outer.path), compares: outer.compares}
		w.pos = start
		w.value(each)
		found := w.violations.violations
		outer.compares, w.violations = w.violations.compares, outer
		if w.fault == enough { // MaxViolations reached for this alternative
			w.fault, w.depth = noFault, depth
		}
		if w.fault != noFault {
			return
		}
		if len(found) == 0 || found[0].Field == here {
			continue // the schema accepts a different type
		}
		same = best != nil && len(found) == len(best)
		if best == nil || len(found) < len(best) {
			best = found
		}
	}
	if best == nil || same {
		w.reportCount("matches none of %d alternatives", len(list))
		return
	}
	for _, v := range best {
		w.violations.add(v.Field, v.Text)
	}
	if len(w.violations.violations) == MaxViolations {
		w.stop(enough)
	}
}

// String returns the number as error texts show it.
func (n *number) String() string {
	if v, ok := n.integer(); ok {
		text := strconv.FormatUint(v, 10)
		if n.negative && v > 0 {
			text = "-" + text
		}
		return text
	}
	return strconv.FormatFloat(n.float, 'g', -1, 64)
}

// joinNames lists names for an error text; it is empty if there are none.
func joinNames(names iter.Seq[string]) (text string) {
	const most = 8
	n := 0
	for name := range names {
		if n++; n > most {
			return text + ", ..."
		}
		if n > 1 {
			text += ", "
		}
		text += quoteName(name)
	}
	return text
}
