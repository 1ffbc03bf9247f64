package schema

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

// repeat joins n texts, each formatted with its number.
func repeat(format string, n int) string {
	var out strings.Builder
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

func doubling(leaf string, depth int) string {
	s := `{"$ref":"#/$defs/d0","$defs":{"d` + fmt.Sprint(depth) + `":` + leaf
	for i := range depth {
		s += fmt.Sprintf(`,"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1)
	}
	return s + `}}`
}

func pattern1(text string) string { return fmt.Sprintf(`{"type":"string","pattern":%q}`, text) }

// costly returns schemas with texts of about size bytes. Each pair causes the
// most work of its kind.
func costly(size int) []struct{ name, schema, text string } {
	long := `"` + strings.Repeat("a", size) + `"`
	list := func(item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", size/(len(item)+1)), ",") + "]"
	}
	anyOf := func(s string, n int) string {
		return `{"anyOf":[` + strings.TrimSuffix(strings.Repeat(s+",", n), ",") + `]}`
	}
	members := repeat(`"%060d":true`, 255)
	object := "{" + repeat(`"%d":1`, 120) + "}"
	dependents := `{"items":{"dependentRequired":{` + repeat(`"%d":[`+strings.ReplaceAll(repeat(`"%d"`, 120), "%", "%%")+`]`, 120) + `}}}`
	return []struct{ name, schema, text string }{
		{"numbers", `{"items":{"type":"integer"}}`, list("1")},
		{"doubled", doubling(`{"items":{"type":"integer"}}`, 8), list("1")},
		{"skipped", doubling(`true`, 20), list("1")},
		{"spaces", doubling(`{"type":"array"}`, 20), "[" + strings.Repeat(" ", size) + "]"},
		{"spaces between", doubling(`{"items":{"type":"integer"}}`, 20), list("1" + strings.Repeat(" ", 14))},
		{"long string", doubling(`{"minLength":1}`, 20), long},
		{"escapes", doubling(`{"minLength":1}`, 20), `"` + strings.Repeat(`\u0041`, size/6) + `"`},
		{"long number", doubling(`{"multipleOf":0.01}`, 20), strings.Repeat("9", size)},
		{"long exponent", doubling(`{"multipleOf":3}`, 20), "1e" + strings.Repeat("9", size)},
		{"numbers of 20 digits", doubling(`{"items":{"multipleOf":0.01}}`, 20), list("12345678901234567.89")},
		{"denormal", `{"items":{"multipleOf":5e-324}}`, list("1e308")},
		{"denormals", `{"items":{"multipleOf":5e-324}}`, list("1.2345678901234567e-310")},
		{"enum of numbers", `{"items":{"enum":[` + repeat("%d.5", 1000) + `,2]}}`, list("2")},
		{"enum of long numbers", `{"items":{"enum":[` + repeat("12345678901234%05d", 1000) + `,2]}}`, list("2")},
		{"enum of strings", `{"items":{"enum":[` + repeat(`"%060d"`, 1000) + `]}}`, list(`"x` + strings.Repeat("0", 59) + `"`)},
		{"unknown members", `{"properties":{` + members + `},"additionalProperties":false}`, "{" + repeat(`"x%059d":1`, size/66) + "}"},
		{"one unknown member", `{"properties":{` + members + `},"additionalProperties":false}`, "{" + strings.TrimSuffix(strings.Repeat(`"x`+strings.Repeat("0", 59)+`":1,`, size/66), ",") + "}"},
		{"unknown in items", `{"items":{"properties":{` + members + `},"additionalProperties":false}}`, list(`{"` + strings.Repeat("x", 60) + `":1}`)},
		{"unfit in alternatives", `{"items":` + anyOf(`{"properties":{`+members+`},"additionalProperties":false}`, 3) + `}`, list(`{"` + strings.Repeat("x", 60) + `":1}`)},
		{"nested alternatives", `{"items":` + anyOf(anyOf(anyOf(anyOf(`{"required":["a"]}`, 5), 5), 5), 5) + `}`, list(`{"b":1}`)},
		{"nothing required there", `{"items":{"required":[` + repeat(`"%d"`, 256) + `]}}`, list("{}")},
		{"dependent members", dependents, "[" + strings.TrimSuffix(strings.Repeat(object+",", size/(len(object)+1)), ",") + "]"},
		{"names", `{"propertyNames":{"pattern":"^(a|b)*c"},"additionalProperties":false}`, `{` + strings.TrimSuffix(strings.Repeat(`"abababab":1,`, size/13), ",") + `}`},
		{"pattern members", `{"patternProperties":{` + repeat(`"^x-%d":true`, 60) + `}}`, "{" + strings.TrimSuffix(strings.Repeat(`"x-":1,`, size/7), ",") + "}"},
		{"pattern of optionals", pattern1(`^(a?){300}a{300}$`), long},
		{"pattern of stars", pattern1(`(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)x$`), long},
		{"pattern of pluses", pattern1(`(a+a+)+b`), long},
		{"pattern of repetitions", pattern1(`[a-z]{0,990}b`), long},
		{"pattern of classes", pattern1(`(\p{L}*\p{Greek}*\pN*)*[^\p{Lu}]x`), `"` + strings.Repeat("é", size/2) + `"`},
		{"pattern without case", pattern1(`(?i)(k|s|aa)*b`), long},
		{"pattern of words", pattern1(`(\ba*\B)*x`), long},
		{"patterns on short strings", `{"items":` + anyOf(pattern1(`[a-z]{0,990}b`), 30) + `}`, list(`"aaaa"`)},
		{"many short matches", `{"items":` + pattern1(`^a$`) + `}`, list(`"a"`)},
		{"alternatives on a long string", anyOf(pattern1(`(a|aa|aaa|a*b){20}c`), 60), long},
		{"deep", `{"items":{"$ref":"#"}}`, strings.Repeat("[", size/2) + strings.Repeat("]", size/2)},
		{"deep items", `{"items":{"$ref":"#"},"allOf":[{"minItems":0}]}`, list(strings.Repeat("[", 12) + strings.Repeat("]", 12))},
		{"deep faults", `{"items":{"$ref":"#"},"type":"array"}`, list(strings.Repeat("[", 490) + "1" + strings.Repeat("]", 490))},
	}
}

// BenchmarkStepsAtTheirBound measures the most expensive texts. The important
// result is ns/step: a step must take at most 20 ns, because the number of
// steps limits the time of a check.
func BenchmarkStepsAtTheirBound(b *testing.B) {
	for _, c := range costly(1<<20 - 64) {
		b.Run(c.name, func(b *testing.B) {
			s := mustCompile(b, c.schema)
			text, steps := []byte(c.text), 0
			var longest, pause time.Duration
			for b.Loop() {
				began := time.Now()
				last := began
				_, steps, _ = s.CheckWith(text, Options{Pause: func() bool {
					now := time.Now()
					pause, last = max(pause, now.Sub(last)), now
					return true
				}})
				longest = max(longest, time.Since(began))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(steps), "ns/step")
			b.ReportMetric(float64(steps), "steps")
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
			b.ReportMetric(float64(pause.Microseconds())/1000, "longest-pause-ms")
		})
	}
}

// TestStepsBoundEveryCheck checks that a check of any text against any schema
// takes no more steps than the text allows, and always the same number.
func TestStepsBoundEveryCheck(t *testing.T) {
	for _, c := range costly(64 << 10) {
		s, text := mustCompile(t, c.schema), []byte(c.text)
		most, pauses := leastSteps+stepsPerByte*len(text), 0
		first, steps, err := s.CheckWith(text, Options{Pause: func() bool { pauses++; return pauses <= most/PauseSteps }})
		if err != nil || steps > most {
			t.Fatalf("%s: %d steps, %d allowed, %v", c.name, steps, most, err)
		}
		again, count, _ := s.CheckWith(text, Options{})
		if count != steps || told(again) != told(first) {
			t.Errorf("%s: %d steps, then %d; %v, then %v", c.name, steps, count, first, again)
		}
	}
}

// TestUnknownMembersCostAtMostTheirText checks that the search for violations
// ends at MaxViolations, and that a name is compared with at most 64 other
// names.
func TestUnknownMembersCostAtMostTheirText(t *testing.T) {
	for _, c := range costly(1 << 20) {
		if c.name != "unknown members" && c.name != "enum of strings" {
			continue
		}
		// The first violation is at the start of the text, so only a short part is
		// read twice.
		violations, steps, err := mustCompile(t, c.schema).CheckWith([]byte(c.text), Options{})
		most := MaxViolations * (reportSteps + 1024 + comparedMost*nearestMost*nearestMost/cellsPerStep)
		if err != nil || len(violations) != MaxViolations || steps > most {
			t.Errorf("%s: %d violations, %d steps of at most %d, %v", c.name, len(violations), steps, most, err)
		}
	}
	names := func(yield func(string) bool) {
		for i := range 1024 {
			if !yield(fmt.Sprintf("%060d", i)) {
				return
			}
		}
	}
	if _, steps := nearest(strings.Repeat("x", 60), names, math.MaxInt); steps > (comparedMost+1)*(1+60*60/cellsPerStep) {
		t.Errorf("%d steps for one name", steps)
	}
}

// TestViolationsAreReportedWhenStepsRunOut checks that the violations found so far are
// reported when the steps are used up.
func TestViolationsAreReportedWhenStepsRunOut(t *testing.T) {
	for depth, want := range map[int]string{3: "[10000]: is a string, not an integer", 5: "does not match the schema", 9: faultTexts[tooLong]} {
		s := mustCompile(t, doubling(`{"items":{"type":"integer"}}`, depth))
		if got := told(s.Check([]byte("[" + strings.Repeat("1,", 10_000) + `"a"]`))); got != want {
			t.Errorf("depth %d: %s", depth, got)
		}
	}
	s := mustCompile(t, `{"items":{"anyOf":[{"required":["a"]},{"required":["b"]}]}}`)
	if got := s.Check([]byte("[" + strings.Repeat(`{"a":1},`, 50_000) + "{}]")); len(got) != 1 || got[0].Field != "[50000]" {
		t.Errorf("%v", got)
	}
}

// TestPauseIsCalledRegularly checks that a check calls Pause at least every few
// thousand steps.
func TestPauseIsCalledRegularly(t *testing.T) {
	for _, c := range costly(64 << 10) {
		s, pauses := mustCompile(t, c.schema), 0
		_, steps, err := s.CheckWith([]byte(c.text), Options{Pause: func() bool { pauses++; return true }})
		if err != nil || pauses < steps/(6*PauseSteps) {
			t.Errorf("%s: %d pauses in %d steps, %v", c.name, pauses, steps, err)
		}
		if pauses == 0 {
			continue
		}
		violations, early, err := s.CheckWith([]byte(c.text), Options{Pause: func() bool { return false }})
		if !errors.Is(err, ErrInterrupted) || violations != nil || early > steps {
			t.Errorf("%s: interrupted after %d steps: %v, %v", c.name, early, violations, err)
		}
	}
}

// TestPatternsMatchStandardLibrary checks that the matcher agrees with the
// standard library's matcher for random expressions and texts.
func TestPatternsMatchStandardLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	atoms := []string{"a", "b", "é", ".", "[a-c]", "[^a]", `\d`, `\w`, `\b`, `\B`, "^", "$", `\pL`, "(?i:K)", "(?s:.)", "(?m:^)", "(?m:$)", `\A`, `\z`, "ab", "", "a{2,3}", "(?:a|ab)", "x?"}
	var draw func(depth int) string
	draw = func(depth int) string {
		switch n := random.IntN(8); {
		case depth == 0 || n < 3:
			return atoms[random.IntN(len(atoms))]
		case n < 5:
			return draw(depth-1) + draw(depth-1)
		case n == 5:
			return "(" + draw(depth-1) + "|" + draw(depth-1) + ")"
		default:
			return "(" + draw(depth-1) + ")" + []string{"*", "+", "?", "{0,3}", "*?"}[random.IntN(5)]
		}
	}
	letters := []rune("aabbcké\n1_ Kſ\u212a-x")
	for range 4000 {
		expression := draw(4)
		re, err := regexp.Compile(expression)
		if err != nil || len(expression) > MaxPatternBytes {
			continue
		}
		p, tooLong, err := compilePattern(expression)
		if err != nil || tooLong {
			continue
		}
		for range 8 {
			text := make([]rune, random.IntN(9))
			for i := range text {
				text[i] = letters[random.IntN(len(letters))]
			}
			w := newWalker(nil, Options{})
			if got, want := w.matches(p, []byte(string(text))), re.MatchString(string(text)); got != want || w.fault != noFault {
				t.Fatalf("%q on %q: %v, want %v", expression, string(text), got, want)
			}
		}
	}
}

// TestDivides checks that divides agrees with math.Mod.
func TestDivides(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		x, y := math.Float64frombits(random.Uint64()), math.Abs(math.Float64frombits(random.Uint64()))
		if random.IntN(2) == 0 {
			y = math.Ldexp(float64(1+random.IntN(50)), random.IntN(20)-10)
			x = math.Ldexp(float64(random.IntN(1000)), random.IntN(20)-10)
		}
		if math.IsNaN(x) || math.IsNaN(y) || y == 0 || math.IsInf(x, 0) || math.IsInf(y, 0) {
			continue
		}
		if got, want := divides(y, x), math.Mod(x, y) == 0; got != want {
			t.Fatalf("%v divides %v: %v, want %v", y, x, got, want)
		}
	}
}
