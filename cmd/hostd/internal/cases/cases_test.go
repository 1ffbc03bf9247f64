package cases

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// command runs 'hostd test' with arguments, using the module instead of a file.
func command(t *testing.T, wasm []byte, args ...string) (code int, out, talk string) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles modules, on one goroutine")
	}
	file := filepath.Join(t.TempDir(), "module.wasm")
	if err := os.WriteFile(file, wasm, 0o600); err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	std := cli.Stdio{In: strings.NewReader(""), Out: &o, Err: &e}
	root := cli.Group("hostd", "", NewCommand(std, func(context.Context, string) ([]byte, error) { return nil, errors.New("there is no project") }))
	code = cli.Run(t.Context(), root, append([]string{"test", file}, args...), std)
	return code, o.String(), e.String()
}

// caseFile writes a case file.
func caseFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cases.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestExamplesPassTheirCases runs the cases of the counter in each language,
// and of types that send, set timers and keep a durable state.
func TestExamplesPassTheirCases(t *testing.T) {
	for module, cases := range map[string]string{
		"counter": "counter", "counter-c": "counter", "counter-rust": "counter", "counter-as": "counter", "counter-ts": "counter-ts", "transfer": "transfer", "session": "session",
	} {
		t.Run(module, func(t *testing.T) {
			wasm := testkit.BuildExample(t, module)
			code, out, talk := command(t, wasm, filepath.Join("../../../../examples/wasm", cases, DefaultFile))
			if code != cli.ExitDone || strings.Contains(out, "FAILED") || !strings.Contains(talk, " cases passed") {
				t.Errorf("%d\n%s%s", code, out, talk)
			}
		})
	}
}

// TestEveryDifferenceIsReported checks that every difference is reported separately, and
// that the exit code is set.
func TestEveryDifferenceIsReported(t *testing.T) {
	all := []struct {
		what, text, module string
		says               []string
	}{
		{"another reply", `when: {command: add, payload: {amount: 3}}, then: {reply: {total: 4}}`, "counter", []string{"the reply is not as expected", "/total: want 4, got 3"}},
		{"another event", `when: {command: add, payload: {amount: 3}}, then: {events: [reset]}`, "counter", []string{"the events are [added], want [reset]"}},
		{"another payload", `when: {command: add, payload: {amount: 3}}, then: {events: [{added: {amount: 4}}]}`, "counter", []string{"event 1, added, is not as expected", "/amount: want 4, got 3"}},
		{"another digit beyond 2^53", `when: {command: add, payload: {amount: 9007199254740993}}, then: {reply: {total: 9007199254740992}}`, "counter", []string{"want 9007199254740992, got 9007199254740993"}},
		{"no event", `when: {command: add, payload: {amount: 3}}, then: {events: []}`, "counter", []string{"want []"}},
		{"another state", `given: [{added: {amount: 3}}], then: {state: {total: 4}}`, "counter", []string{"the state is not as expected", "/total: want 4, got 3"}},
		{"a rejection", `given: [{added: {amount: 9223372036854775807}}], when: {command: add, payload: {amount: 1}}, then: {}`, "counter", []string{"add was rejected: overflow: the total would not fit 64 bits"}},
		{"no rejection", `when: {command: add, payload: {amount: 1}}, then: {rejected: overflow}`, "counter", []string{"add was not rejected, want overflow"}},
		{"another rejection", `when: {command: add, payload: {amount: x}}, then: {rejected: overflow}`, "counter", []string{"add was rejected with invalid_payload (", "want overflow"}},
		{"no such command", `when: {command: sub}, then: {}`, "counter", []string{`the type counter has no command "sub"`}},
		{"no such query", `when: {query: add}, then: {}`, "counter", []string{`the type counter has no query "add"`}},
		{"a life that goes on", `when: {command: reset}, then: {deleted: true}`, "counter", []string{"the entity is not deleted"}},
		{"tags", `when: {command: reset}, then: {events: [{event: reset, payload: {}, tags: [x]}]}`, "counter", []string{`has the tags [], want ["x"]`}},
		{"another send", `when: {command: start, payload: {from: a, to: b, amount: 3}}, then: {sends: [{type: account, id: b, command: withdraw}]}`, "transfer", []string{`message 1 is ["account" "a" "withdraw"`}},
		{"another timer", `when: {command: start, payload: {from: a, to: b, amount: 3}}, then: {timers: [{name: timeout, in: 31s}]}`, "transfer", []string{"timer timeout is due in 30s, want 31s"}},
		{"no timer", `when: {command: start, payload: {from: a, to: b, amount: 3}}, then: {timers: [], sends: []}`, "transfer", []string{"1 timers are set or cancelled, want 0: timeout", "there are 1 messages, want 0: account a withdraw"}},
	}
	for _, module := range []string{"counter", "transfer"} {
		text := "cases:\n"
		for _, c := range all {
			if c.module == module {
				text += "  - {name: " + c.what + ", " + c.text + "}\n"
			}
		}
		code, out, talk := command(t, testkit.BuildExample(t, module), caseFile(t, text))
		n := strings.Count(text, "name: ") - strings.Count(text, "{name: timeout")
		if code != cli.ExitFailed || !strings.Contains(talk, fmt.Sprintf("%d of %d cases failed", n, n)) {
			t.Errorf("%s: %d\n%s%s", module, code, out, talk)
		}
		for _, c := range all {
			_, told, _ := strings.Cut(out, "FAILED  "+c.what+" (")
			told, _, _ = strings.Cut(told, "FAILED")
			for _, says := range c.says {
				if c.module == module && !strings.Contains(told, says) {
					t.Errorf("%s: it does not say %q:\n%s", c.what, says, told)
				}
			}
		}
	}
}

// TestImpureModulesFail checks that a case fails, whatever it expects, if a
// replay of the events produces a different state.
func TestImpureModulesFail(t *testing.T) {
	file := caseFile(t, `
cases:
  - name: puts
    steps:
      - {when: {command: put, payload: {item: a}}, then: {}}
      - {when: {command: put, payload: {item: b}}, then: {}}
      - {when: {command: put, payload: {item: c}}, then: {}}
      - {when: {command: put, payload: {item: d}}, then: {}}
      - {when: {command: put, payload: {item: e}}, then: {}}
      - {when: {command: put, payload: {item: f}}, then: {}}
`)
	code, out, _ := command(t, testkit.BuildGuest(t, "tests/conformance/testdata/maporder"), file)
	if code != cli.ExitFailed || !strings.Contains(out, "the state differs from a replay of the events") || !strings.Contains(out, "/first: want ") {
		t.Errorf("%d\n%s", code, out)
	}
}

// TestCaseStartsWithStoredState checks that a case may start with a state of an
// earlier version that the module reads, and that a command stores a state of
// the current version.
func TestCaseStartsWithStoredState(t *testing.T) {
	file := caseFile(t, `
cases:
  - {name: is migrated, stored: {words: 3}, storedVersion: 1, then: {state: {english: 3, french: 0}}}
  - name: is written anew
    stored: {words: 3}
    storedVersion: 1
    steps:
      - when: {command: write, payload: {words: 2, french: true}}
        then: {state: {english: 3, french: 2}}
      - when: {command: write, payload: {words: 1}}
        then: {state: {english: 4, french: 2}}
  - {name: is its own, stored: {english: 1, french: 2}, storedVersion: 2, then: {state: {english: 1, french: 2}}}
`)
	wasm := testkit.BuildGuest(t, "tests/e2e/entities/drafts/later")
	if code, out, talk := command(t, wasm, file); code != cli.ExitDone || !strings.Contains(talk, "3 cases passed") {
		t.Errorf("%d\n%s%s", code, out, talk)
	}
	newer := caseFile(t, "cases: [{name: newer, stored: {}, storedVersion: 3, then: {state: {}}}]")
	if code, out, talk := command(t, wasm, newer); code != cli.ExitFailed || !strings.Contains(talk, "cases.yaml:1: the module reads no states of version 3") {
		t.Errorf("%d\n%s%s", code, out, talk)
	}
}

// TestResultsInJSON checks that there is a line for each of the selected cases.
func TestResultsInJSON(t *testing.T) {
	file := caseFile(t, `
cases:
  - {name: good, when: {query: total}, then: {reply: {total: 0}}}
  - {name: bad, when: {query: total}, then: {reply: {total: 1}}}
`)
	code, out, _ := command(t, testkit.BuildExample(t, "counter"), file, "-o", "json")
	var results []Result
	for line := range strings.Lines(out) {
		var r Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	if code != cli.ExitFailed || len(results) != 2 || !results[0].Passed || results[1].Passed || len(results[1].Failures) != 1 || results[1].Line != 4 {
		t.Errorf("%d %+v", code, results)
	}
	if code, out, _ := command(t, testkit.BuildExample(t, "counter"), file, "--run", "^good$"); code != cli.ExitDone || out != "ok      good\n" {
		t.Errorf("%d %s", code, out)
	}
	if code, _, talk := command(t, testkit.BuildExample(t, "counter"), file, "--run", "none"); code != cli.ExitUsage || !strings.Contains(talk, "no case has a name") {
		t.Errorf("%d %s", code, talk)
	}
	if code, _, _ := command(t, []byte("no module"), file); code != cli.ExitFailed {
		t.Errorf("no module: %d", code)
	}
}

// TestGivenEventsMustBeDeclared checks that an event that the module cannot have
// stored is a fault of the file, not of the module.
func TestGivenEventsMustBeDeclared(t *testing.T) {
	for module, rows := range map[string][][2]string{
		"counter": {
			{`given: [{lost: {}}]`, `:1: the module has no event "lost"`},
			{`given: [{added: {amount: many}}]`, ":1: the event added does not match its schema: "},
			{`stored: {total: 1}`, "does not store states"},
			{`type: other`, `the module does not serve the type "other"`},
		},
		"session": {{`given: [{added: {}}]`, "the type session stores no events"}},
	} {
		var all []Case
		for _, row := range rows {
			c, err := Parse("f.yaml", strings.NewReader("cases: [{name: one, "+row[0]+", then: {state: {}}}]\n"))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c...)
		}
		m, limits := compiled(t, testkit.BuildExample(t, module))
		for i := range all {
			if _, err := Run(t.Context(), m, limits, &all[i]); err == nil || !strings.Contains(err.Error(), rows[i][1]) {
				t.Errorf("%s: %v", rows[i][0], err)
			}
		}
	}
}

// compiled returns a compiled module.
func compiled(t *testing.T, wasm []byte) (*guest.Module, abi.Limits) {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles modules, on one goroutine")
	}
	e, err := guest.New(t.Context(), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := e.Compile(t.Context(), sha256.Sum256(wasm), wasm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Close(), e.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return m, e.Limits()
}
