package cases

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hostd/hostd/abi/manifest"
)

// TestInvalidFileIsRejectedWithLine checks that the error for an invalid file
// has the line, and suggests what was probably meant.
func TestInvalidFileIsRejectedWithLine(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "f.yaml: contains no cases"},
		{"cases: []", "f.yaml: contains no cases"},
		{"cases: {}", "f.yaml:1: cases must be a list"},
		{"[]", "f.yaml:1: a file of cases must be an object"},
		{"\tx", "f.yaml: yaml:"},
		{"cases: []\n---\nx: 1", "f.yaml: must be a single YAML document"},
		{"case: []", `f.yaml:1: a file of cases has no "case": did you mean cases?`},
		{"cases:\n- nam: x", `f.yaml:2: a case has no "nam": did you mean name?`},
		{"cases:\n- name: x\n  name: y", `f.yaml:3: "name" is duplicated`},
		{"cases:\n- when: {query: q}\n  then: {}", "f.yaml:2: the case has no name"},
		{"cases:\n- name: x", "f.yaml:2: the case expects nothing"},
		{"cases:\n- name: x\n  then: {reply: 1}", "f.yaml:2: a case without a when can only expect a state"},
		{"cases:\n- name: x\n  when: {query: q}", "f.yaml:2: the case has a when but no then"},
		{"cases:\n- name: x\n  steps: []\n  when: {query: q}", "f.yaml:2: a case must have either steps"},
		{"cases:\n- name: x\n  steps:\n  - when: {query: q}", "f.yaml:4: a step must have when and then"},
		{"cases:\n- name: x\n  settings: [a]\n  then: {state: 1}", "f.yaml:3: settings must be {NAME: VALUE}"},
		{"cases:\n- name: x\n  settings: {a: 1, a: 2}\n  then: {state: 1}", `f.yaml:3: the setting "a" is duplicated`},
		{"cases:\n- name: x\n  settings: {a: " + strings.Repeat("v", 4096) + "}\n  then: {state: 1}", "f.yaml:3: the settings have more than 4096 bytes"},
		{"cases:\n- name: x\n  settings: {a: {}}\n  then: {state: 1}", "f.yaml:3: the value must be a string"},
		{"cases:\n- name: x\n  storedVersion: 1\n  then: {state: 1}", "f.yaml:2: storedVersion needs a stored state"},
		{"cases:\n- name: x\n  stored: 1\n  storedVersion: 0\n  then: {state: 1}", "f.yaml:4: the version of a state must be a number of at least 1"},
		{"cases:\n- name: x\n  stored: 1\n  storedVersion: one\n  then: {state: 1}", "f.yaml:4: the version of a state must be a number of at least 1"},
		{"cases:\n- name: x\n  now: tomorrow\n", "f.yaml:3: the value must be a time such as"},
		{"cases:\n- name: x\n  id: \"a\\nb\"\n  then: {state: 1}", "f.yaml:2: "},
		{"cases:\n- name: x\n  when: {command: a, query: b}\n  then: {}", "f.yaml:3: a when must have one of command, query, timer and message"},
		{"cases:\n- name: x\n  when: {message: a}\n  then: {}", "f.yaml:3: a message must have a from"},
		{"cases:\n- name: x\n  when: {command: a, from: {type: t, id: i}}\n  then: {}", "f.yaml:3: a message must have a from"},
		{"cases:\n- name: x\n  when: {message: a, from: {type: T, id: i}}\n  then: {}", "f.yaml:3: "},
		{"cases:\n- name: x\n  when: {command: a, due: 2026-01-01T00:00:00Z}\n  then: {}", "f.yaml:3: only a timer may have a due time"},
		{"cases:\n- name: x\n  when: {timer: a, as: {name: n}}\n  then: {}", "f.yaml:3: only commands and queries may have a caller"},
		{"cases:\n- name: x\n  when: {command: a, as: {groups: [g]}}\n  then: {}", "f.yaml:3: the caller has no name"},
		{"cases:\n- name: x\n  when: {query: a, id: i}\n  then: {}", "f.yaml:3: a query must not have an id"},
		{"cases:\n- name: x\n  when: {query: a}\n  then: {rejected: c, reply: 1}", "f.yaml:4: a rejection must not have events"},
		{"cases:\n- name: x\n  when: {query: a}\n  then: {rejected: {message: m}}", "f.yaml:4: the rejection has no code"},
		{"cases:\n- name: x\n  when: {command: a}\n  then: {timers: [{in: 1h}]}", "f.yaml:4: a timer must be {name"},
		{"cases:\n- name: x\n  when: {command: a}\n  then: {timers: [{name: t, in: soon}]}", "f.yaml:4: time: invalid duration"},
		{"cases:\n- name: x\n  when: {command: a}\n  then: {events: [[]]}", "f.yaml:4: an event must be {TYPE: PAYLOAD}"},
		{"cases:\n- name: x\n  given: [{event: a, tags: [b]}]\n  then: {state: 1}", `f.yaml:3: an event has no "tags"`},
	} {
		all, err := Parse("f.yaml", strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, %v; want %q", c.text, all, err, c.says)
		}
	}
	if _, err := Parse("f.yaml", strings.NewReader(strings.Repeat("#", maxFileBytes+1))); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("a file that is too large: %v", err)
	}
}

// TestValuesBecomePayloads checks that YAML values become JSON with all digits,
// or bytes.
func TestValuesBecomePayloads(t *testing.T) {
	deep := strings.Repeat("[", maxValueDepth+2) + strings.Repeat("]", maxValueDepth+2)
	laughs := "[&a [xxxxxxxxxx,xxxxxxxxxx,xxxxxxxxxx,xxxxxxxxxx], &b [*a,*a,*a,*a,*a,*a,*a,*a], &c [*b,*b,*b,*b,*b,*b,*b,*b], &d [*c,*c,*c,*c,*c,*c,*c,*c], &e [*d,*d,*d,*d,*d,*d,*d,*d], &f [*e,*e,*e,*e,*e,*e,*e,*e], [*f,*f,*f,*f]]"
	for _, c := range []struct {
		text     string
		encoding manifest.Encoding
		want     string // if it begins with !, the text of the error
	}{
		{`{a: 1, b: [true, null, "x<y", 1.5, 2026-01-01]}`, manifest.JSON, `{"a":1,"b":[true,null,"x<y",1.5,"2026-01-01"]}`},
		{`[9223372036854775807, 18446744073709551615, 123456789012345678901234567890, 0x10, 1_000, -0]`, manifest.JSON, `[9223372036854775807,18446744073709551615,1.2345678901234568e+29,16,1000,0]`},
		{`[1e3, .5, 1.0]`, manifest.JSON, `[1000,0.5,1]`},
		{`.inf`, manifest.JSON, "!is not a JSON number"},
		{`{a: 1, a: 2}`, manifest.JSON, "!is duplicated"},
		{`{[a]: 1}`, manifest.JSON, "!the name of a member must be a string"},
		{deep, manifest.JSON, "!deep"},
		{laughs, manifest.JSON, "!a value must have at most"},
		{`"text"`, manifest.Bytes, "text"},
		{`!!binary AAH/`, manifest.Bytes, "\x00\x01\xff"},
		{`!!binary "%"`, manifest.Bytes, "!illegal base64"},
		{`12`, manifest.Bytes, "12"},
		{`null`, manifest.Bytes, ""},
		{`{a: 1}`, manifest.Bytes, "!are bytes"},
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(c.text), &doc); err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		got, err := parser{"f.yaml"}.payload(doc.Content[0], c.encoding)
		if says, fails := strings.CutPrefix(c.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%.80s: %.80q, %v; want %q", c.text, got, err, says)
			}
		} else if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}
