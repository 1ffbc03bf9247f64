package schema

import (
	"fmt"
	"slices"
	"strconv"
)

// report collects what is told of a text that does not fit.
type report struct {
	path       []segment
	violations []Violation
}

type segment struct {
	name string // of a member; empty for an item
	item int
	is   bool // an item
}

// explain walks the text again and collects its faults.
func (s *Schema) explain(text []byte, open bool) []Violation {
	w := newWalker(text, open)
	w.told = &report{}
	w.whole(s.root)
	out := w.told.violations
	if w.fault != noFault {
		out = append(out[:min(len(out), MaxViolations-1)], Violation{Text: faultTexts[w.fault]})
	}
	if len(out) == 0 {
		out = []Violation{{Text: "does not fit"}}
	}
	return out
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

// pathMost is how many steps of a path are told.
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

// tell notes a fault of the value that is walked.
func (w *walker) tell(text string) {
	if w.told != nil && w.fault == noFault {
		w.told.add(w.told.field(), text)
	}
}

func (w *walker) tellBound(text string, bound *number) {
	if w.told != nil {
		w.tell(text + bound.String())
	}
}

func (w *walker) tellPattern(p *pattern) {
	if w.told != nil {
		w.tell("does not match " + quoted(p.re.String()))
	}
}

func (w *walker) tellDependent(name, with string) {
	if w.told != nil {
		w.tellMember([]byte(name), "is missing, and "+quoted(with)+" is there")
	}
}

func (w *walker) tellCount(format string, n int) {
	if w.told != nil {
		w.tell(fmt.Sprintf(format, n))
	}
}

// tellMember notes a fault of a member of the object that is walked.
func (w *walker) tellMember(name []byte, text string) {
	if w.told != nil {
		w.push(string(name), 0)
		w.tell(text)
		w.pop()
	}
}

func (w *walker) tellUnknown(r *objectRule, name []byte) {
	if w.told == nil {
		return
	}
	var names []string
	for _, m := range r.members {
		if m.listed {
			names = append(names, m.name)
		}
	}
	text := "unknown member " + quoted(string(name))
	switch nearest, found := Nearest(string(name), slices.Values(names)); {
	case found:
		text += ", did you mean " + quoted(nearest) + "?"
	case len(names) > 0:
		text += ", there are " + joined(names)
	default:
		text += ", there are none"
	}
	w.tellMember(name, text)
}

func (w *walker) tellMissing(r *objectRule, seen *bits) {
	if w.told == nil {
		return
	}
	for i, m := range r.members {
		if r.required.has(i) && !seen.has(i) {
			w.tellMember([]byte(m.name), "is missing")
		}
	}
}

func (w *walker) tellKind(n *node, k kinds) {
	if w.told != nil {
		w.tell("is " + k.text() + ", not " + n.kinds.text())
	}
}

// text names types.
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
	if w.told == nil {
		return
	}
	text := "is none of " + joined(c.names)
	if len(c.numbers)+len(c.names) == 0 || len(c.numbers) > 0 {
		text = "is none of the values that it may be"
	}
	if nearest, found := Nearest(string(given), slices.Values(c.names)); found && given != nil {
		text += ", did you mean " + quoted(nearest) + "?"
	}
	w.tell(text)
}

// tellNone notes that none of several schemas fits: the faults by the one that
// has the fewest of those that take the type of the value.
func (w *walker) tellNone(list []*node, start int) {
	if w.told == nil || w.fault != noFault {
		return
	}
	outer := w.told
	var best []Violation
	same := false
	for _, each := range list {
		w.told = &report{path: slices.Clone(outer.path)}
		w.pos = start
		here := outer.field()
		w.value(each)
		if w.fault != noFault {
			w.told = outer
			return
		}
		found := w.told.violations
		if len(found) == 0 || found[0].Field == here {
			continue // it is of another kind altogether
		}
		same = best != nil && len(found) == len(best)
		if best == nil || len(found) < len(best) {
			best = found
		}
	}
	w.told = outer
	if best == nil || same {
		w.tellCount("fits none of %d alternatives", len(list))
		return
	}
	for _, v := range best {
		w.told.add(v.Field, v.Text)
	}
}

// String is the number as texts have it.
func (n *number) String() string {
	if n.exact {
		return strconv.FormatInt(n.integer, 10)
	}
	return strconv.FormatFloat(n.float, 'g', -1, 64)
}
