package schema

import "unicode/utf8"

// value checks the next value. If it does not match, the walk stops inside the
// value, unless violations are collected: then the walk continues after the
// value.
func (w *walker) value(n *node) bool {
	if !w.spend(1) || !w.enter() {
		return false
	}
	start := w.pos
	fits := w.one(n)
	if n.repeats() && w.fault == noFault && (fits || w.violations != nil) {
		end := w.pos
		fits = w.checkApplicators(n, start) && fits
		w.pos = end
	}
	w.leave()
	return fits && w.fault == noFault
}

// one checks the value against n itself, without the schemas that n applies to
// it.
func (w *walker) one(n *node) bool {
	if n.never {
		w.report("is not allowed")
		return w.pass()
	}
	switch w.peek() {
	case '{':
		if !w.checkKind(n, kindObject) {
			return w.pass()
		}
		return w.object(n)
	case '[':
		if !w.checkKind(n, kindArray) {
			return w.pass()
		}
		return w.array(n)
	case '"':
		if !w.checkKind(n, kindString) {
			return w.pass()
		}
		return w.textValue(n)
	case 't', 'f', 'n':
		return w.wordValue(n)
	}
	return w.numberValue(n)
}

// checkKind reports whether the schema accepts a type, and reports a violation if
// not.
func (w *walker) checkKind(n *node, k kinds) bool {
	if n.kinds != 0 && n.kinds&k == 0 {
		w.reportKind(n, k)
		return false
	}
	if n.choice != nil && k&(kindObject|kindArray) != 0 {
		w.reportChoice(n.choice, nil)
		return false
	}
	return true
}

// pass skips a value that does not match.
func (w *walker) pass() bool {
	if w.violations != nil {
		w.skip()
	}
	return false
}

func (w *walker) wordValue(n *node) bool {
	c := w.peek()
	if !w.word() {
		return false
	}
	k := kindBool
	if c == 'n' {
		k = kindNull
	}
	if !w.checkKind(n, k) {
		return false
	}
	if n.choice != nil && (n.choice.kinds&k == 0 || k == kindBool && !n.choice.truth[truth(c == 't')]) {
		w.reportChoice(n.choice, nil)
		return false
	}
	return true
}

func (w *walker) numberValue(n *node) bool {
	raw, _, ok := w.digits()
	if !ok {
		return false
	}
	if n.kinds&kindNumber != 0 && n.number == nil && n.choice == nil && n.format == noFormat {
		return true
	}
	if !w.spend(len(raw) / 4) {
		return false
	}
	v := parseNumber(raw)
	k := kindNumber
	if v.whole() {
		k |= kindInteger
	}
	if !w.checkKind(n, k) {
		return false
	}
	fits := true
	if n.choice != nil {
		if !w.spend(len(n.choice.numbers) / 4) {
			return false
		}
		if fits = n.choice.hasNumber(&v); !fits {
			w.reportChoice(n.choice, nil)
		}
	}
	if n.format != noFormat && k&kindInteger != 0 && !n.format.holds(&v) {
		w.report("is beyond 64 bits")
		fits = false
	}
	return w.numberRule(n.number, &v) && fits
}

func (w *walker) numberRule(r *numberRule, v *number) bool {
	switch {
	case r == nil:
		return true
	case r.least != nil && v.compare(r.least) < 0:
		w.reportBound("is less than ", r.least)
	case r.most != nil && v.compare(r.most) > 0:
		w.reportBound("is more than ", r.most)
	case r.above != nil && v.compare(r.above) <= 0:
		w.reportBound("is not more than ", r.above)
	case r.below != nil && v.compare(r.below) >= 0:
		w.reportBound("is not less than ", r.below)
	case r.multipleOf != nil && !v.multipleOf(r.multipleOf):
		w.reportBound("is not a multiple of ", r.multipleOf)
	default:
		return true
	}
	return false
}

func (w *walker) textValue(n *node) bool {
	raw, escaped, ok := w.string()
	if !ok {
		return false
	}
	if n.choice == nil && n.text == nil && n.format == noFormat {
		return true
	}
	if escaped {
		if !w.spend(len(raw) / 8) {
			return false
		}
		raw = unescape(raw)
	}
	return w.textRules(n, raw)
}

func (w *walker) textRules(n *node, text []byte) bool {
	if n.choice != nil {
		if _, among := n.choice.text[string(text)]; !among {
			w.reportChoice(n.choice, text)
			return false
		}
	}
	if n.format != noFormat && !n.format.fits(text) {
		w.report("is not a 64-bit integer in digits")
		return false
	}
	r := n.text
	if r == nil {
		return true
	}
	if r.least > 0 || r.most >= 0 {
		switch count := utf8.RuneCount(text); {
		case count < r.least:
			w.reportCount("has fewer than %d characters", r.least)
			return false
		case r.most >= 0 && count > r.most:
			w.reportCount("has more than %d characters", r.most)
			return false
		}
	}
	if r.pattern != nil && !w.matches(r.pattern, text) {
		w.reportPattern(r.pattern) // no violation if the match was interrupted
		return false
	}
	return true
}

// hasNumber reports whether a number is one of the allowed values.
func (c *choice) hasNumber(v *number) bool {
	for i := range c.numbers {
		if v.equal(&c.numbers[i]) {
			return true
		}
	}
	return false
}

func (w *walker) array(n *node) bool {
	r := n.array
	if r == nil {
		return w.skip()
	}
	fits, count, hits := true, 0, 0
	for w.pos++; ; count++ {
		if w.space(); count == 0 && w.take(']') {
			break
		}
		fits = w.item(r, count, &hits) && fits
		if w.fault != noFault || !fits && w.violations == nil {
			return false
		}
		if w.space(); w.take(']') {
			count++
			break
		}
		if !w.take(',') {
			return w.stop(notJSON)
		}
	}
	switch {
	case count < r.least:
		w.reportCount("has fewer than %d items", r.least)
	case r.most >= 0 && count > r.most:
		w.reportCount("has more than %d items", r.most)
	case r.contains != nil && hits < r.leastHits:
		w.reportCount("has fewer than %d items that match contains", r.leastHits)
	case r.contains != nil && r.mostHits >= 0 && hits > r.mostHits:
		w.reportCount("has more than %d items that match contains", r.mostHits)
	default:
		return fits
	}
	return false
}

// item checks one item of a list.
func (w *walker) item(r *arrayRule, i int, hits *int) bool {
	if r.contains != nil {
		start := w.pos
		if w.silently(r.contains) {
			*hits++
		}
		if w.pos = start; w.fault != noFault {
			return false
		}
	}
	next := r.items
	if i < len(r.first) {
		next = r.first[i]
	}
	if next == nil {
		return w.skip()
	}
	w.push("", i)
	fits := w.value(next)
	w.pop()
	return fits
}

// silently checks a value without collecting violations. If it does not match,
// it returns to the start of the value.
func (w *walker) silently(n *node) bool {
	told, start, depth := w.violations, w.pos, w.depth
	w.violations = nil
	fits := w.value(n)
	if w.violations = told; !fits {
		w.pos, w.depth = start, depth
	}
	return fits
}

// checkApplicators checks the value at start against the schemas that n applies to it.
func (w *walker) checkApplicators(n *node, start int) bool {
	fits := true
	for _, each := range n.all {
		w.pos = start
		if fits = w.value(each) && fits; w.fault != noFault || !fits && w.violations == nil {
			return false
		}
	}
	if n.any != nil {
		fits = w.anyOf(n.any, start) && fits
	}
	if n.one != nil {
		fits = w.oneOf(n.one, start) && fits
	}
	if n.not != nil {
		w.pos = start
		if w.silently(n.not) {
			w.report("matches a schema that it must not match")
			fits = false
		}
	}
	if n.when != nil {
		w.pos = start
		next := n.other
		if w.silently(n.when) {
			next = n.then
		}
		w.pos = start
		if next != nil && w.fault == noFault {
			fits = w.value(next) && fits
		}
	}
	return fits && w.fault == noFault
}

func (w *walker) anyOf(list []*node, start int) bool {
	for _, each := range list {
		w.pos = start
		if w.silently(each) {
			return true
		}
		if w.fault != noFault {
			return false
		}
	}
	w.reportNone(list, start)
	return false
}

func (w *walker) oneOf(list []*node, start int) bool {
	hits := 0
	for _, each := range list {
		w.pos = start
		if w.silently(each) {
			hits++
		}
		if w.fault != noFault {
			return false
		}
	}
	switch hits {
	case 1:
		return true
	case 0:
		w.reportNone(list, start)
	default:
		w.reportCount("fits %d alternatives, but must match exactly one", hits)
	}
	return false
}
