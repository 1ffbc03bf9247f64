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
	name string // of a member; empty for an item
	item int
	is   bool // it is an item
}

// explain walks the text again and collects its violations, with the steps that
// the first walk left. It ends at MaxViolations or when the steps are used up,
// because it is known already that the text does not match.
func (s *Schema) explain(w walker) ([]Violation, walker) {
	if w.fault == tooLong {
		return []Violation{{Text: faultTexts[w.fault]}}, w
	}
	w.pos, w.depth, w.fault, w.told = 0, 0, noFault, &report{compares: w.left / 2}
	w.whole(s.root)
	out := w.told.violations
	if w.fault == notJSON || w.fault == tooDeep {
		out = append(out[:min(len(out), MaxViolations-1)], Violation{Text: faultTexts[w.fault]})
	}
	if len(out) == 0 {
		out = []Violation{{Text: "does not fit"}}
	}
	return out, w
}

func (w *walker) push(name string, item int) {
	if w.told != nil {
		w.told.path = append(w.told.path, segment{name, item, name == ""})
	}
}

func (w *walker) pop() {
	if w.told != nil {
		w.told.path = w.told.path[:len(w.told.path)-1]
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

// tellSteps is the cost of a violation's text, in steps.
const tellSteps = 256

// tell reports a violation by the current value.
func (w *walker) tell(text string) {
	if w.told == nil || w.fault != noFault || !w.spend(tellSteps) {
		return
	}
	if w.told.add(w.told.field(), text); len(w.told.violations) == MaxViolations {
		w.stop(enough)
	}
}

// telling reports whether a violation would be recorded now, so that its text
// is needed.
func (w *walker) telling() bool { return w.told != nil && w.fault == noFault }

func (w *walker) tellBound(text string, bound *number) {
	if w.telling() {
		w.tell(text + bound.String())
	}
}

func (w *walker) tellPattern(p *pattern) {
	if w.telling() {
		w.tell("does not match " + quoted(p.text))
	}
}

func (w *walker) tellDependent(name, with string) {
	if w.telling() {
		w.tellMember([]byte(name), "is missing, and "+quoted(with)+" is there")
	}
}

func (w *walker) tellCount(format string, n int) {
	if w.telling() {
		w.tell(fmt.Sprintf(format, n))
	}
}

// tellMember reports a violation by a member of the current object.
func (w *walker) tellMember(name []byte, text string) {
	if w.telling() {
		w.push(string(name), 0)
		w.tell(text)
		w.pop()
	}
}

func (w *walker) tellUnknown(r *objectRule, name []byte) {
	if !w.telling() {
		return
	}
	text := "unknown member " + quoted(string(name))
	if nearest, found := w.nearest(name, r.listed()); found {
		text += ", did you mean " + quoted(nearest) + "?"
	} else if names := joined(r.listed()); names != "" {
		text += ", there are " + names
	} else {
		text += ", there are none"
	}
	w.tellMember(name, text)
}

// listed returns the names of the members that the schema describes, in order.
func (r *objectRule) listed() iter.Seq[string] {
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
	found, steps := nearest(string(name), names, w.told.compares)
	w.told.compares -= steps
	return found, w.spend(steps) && found != ""
}

func (w *walker) tellMissing(r *objectRule, seen *memberSet) {
	for i, m := range r.members {
		if !w.telling() {
			return
		}
		if r.required.has(i) && !seen.has(i) {
			w.tellMember([]byte(m.name), "is missing")
		}
	}
}

func (w *walker) tellKind(n *node, k kinds) {
	if w.telling() {
		w.tell("is " + k.text() + ", not " + n.kinds.text())
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

func (w *walker) tellChoice(c *choice, given []byte) {
	if !w.telling() {
		return
	}
	text := "is none of " + joined(slices.Values(c.names))
	if len(c.numbers)+len(c.names) == 0 || len(c.numbers) > 0 {
		text = "is none of the values that it may be"
	}
	if nearest, found := w.nearest(given, slices.Values(c.names)); found {
		text += ", did you mean " + quoted(nearest) + "?"
	}
	w.tell(text)
}

// tellNone reports that none of several schemas matches. It reports the
// violations of the schema with the fewest, among those that accept the type of
// the value.
func (w *walker) tellNone(list []*node, start int) {
	if !w.telling() {
		return
	}
	outer, depth, here := w.told, w.depth, w.told.field()
	var best []Violation
	same := false
	for _, each := range list {
		if !w.spend(tellSteps + len(outer.path)) {
			return
		}
		w.told = &report{path: slices.Clone(outer.path), compares: outer.compares}
		w.pos = start
		w.value(each)
		found := w.told.violations
		outer.compares, w.told = w.told.compares, outer
		if w.fault == enough { // for this alternative
			w.fault, w.depth = noFault, depth
		}
		if w.fault != noFault {
			return
		}
		if len(found) == 0 || found[0].Field == here {
			continue // it accepts another type
		}
		same = best != nil && len(found) == len(best)
		if best == nil || len(found) < len(best) {
			best = found
		}
	}
	if best == nil || same {
		w.tellCount("fits none of %d alternatives", len(list))
		return
	}
	for _, v := range best {
		w.told.add(v.Field, v.Text)
	}
	if len(w.told.violations) == MaxViolations {
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

// joined lists names for an error text; it is empty if there are none.
func joined(names iter.Seq[string]) (text string) {
	const most = 8
	n := 0
	for name := range names {
		if n++; n > most {
			return text + ", ..."
		}
		if n > 1 {
			text += ", "
		}
		text += quoted(name)
	}
	return text
}
