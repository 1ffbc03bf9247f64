package status_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const errorsPage = "../../docs/reference/errors.md"

// reasonPattern matches a string literal that can only be a reason.
var reasonPattern = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

// TestEveryReasonIsExplained checks that the page has a whole section for
// each reason in the sources, and no section for any other reason.
func TestEveryReasonIsExplained(t *testing.T) {
	text, err := os.ReadFile(errorsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(text), "\n## Reasons\n")
	if !ok {
		t.Fatal("no heading Reasons")
	}
	sections, _, _ := strings.Cut(after, "\n## ")
	documented := map[string]string{}
	for _, section := range strings.Split(sections, "\n### ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		documented[name] = body
	}
	known := reasonsInSources(t, "..")
	if len(known) < 12 {
		t.Errorf("only %d reasons were found: %v", len(known), known)
	}
	for reason, where := range known {
		if documented[reason] == "" {
			t.Errorf("%s of %s has no section in %s", reason, where, errorsPage)
		}
	}
	codes := map[string]bool{}
	for c := connect.CodeCanceled; c <= connect.CodeUnauthenticated; c++ {
		codes[c.String()] = true
	}
	for name, body := range documented {
		if known[name] == "" {
			t.Errorf("nothing in the sources has the reason %s", name)
		}
		for _, item := range []string{"Code", "Meaning", "Cause", "What to do", "Retry"} {
			if !regexp.MustCompile(`(?m)^- \*\*` + item + `\*\*: \S`).MatchString(body) {
				t.Errorf("%s does not say %q", name, item)
			}
		}
		if code := codeOfSection(body); !codes[code] {
			t.Errorf("%s: %q is not a code", name, code)
		}
	}
	for _, err := range []error{
		request.ErrForgotten, request.ErrInternalCommand, request.ErrRolesStale, journal.ErrOtherHistory, &request.DeniedError{Verb: "invoke"},
		&status.RefusedError{Name: status.RefusedKind}, &status.RefusedError{Name: status.RefusedEvents},
		&status.RefusedError{Name: status.RefusedFault}, &status.RefusedError{Name: status.RefusedUnverified},
	} {
		public := status.Public(slog.New(slog.DiscardHandler), err)
		info, ok := status.Detail(err).(interface{ GetReason() string })
		if !ok {
			t.Errorf("%v has no reason", err)
		} else if code := codeOfSection(documented[info.GetReason()]); code != public.Code().String() {
			t.Errorf("%s: the page says %s, the code is %v", info.GetReason(), code, public.Code())
		}
	}
}

// codeOfSection returns the code that a section of the page names.
func codeOfSection(body string) string {
	m := regexp.MustCompile("(?m)^- \\*\\*Code\\*\\*: `([a-z_]+)`$").FindStringSubmatch(body)
	if m == nil {
		return ""
	}
	return m[1]
}

// reasonsInSources returns the reasons that packages below a directory use, with
// a file for each. A reason is a literal with underscores, or the literal of a
// member Reason in capital letters.
func reasonsInSources(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				key, ok := n.Key.(*ast.Ident)
				if text := literal(n.Value); ok && key.Name == "Reason" && text != "" && text == strings.ToUpper(text) {
					found[text] = path
				}
			case *ast.BasicLit:
				if text := literal(n); reasonPattern.MatchString(text) && !strings.HasPrefix(text, "HOSTD_") && !strings.HasPrefix(text, "OTEL_") {
					found[text] = path
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return text
}

// TestEveryErrorWithoutAReasonIsListed checks that each error that ends a
// request is in the page's table with its code, or has a reason.
func TestEveryErrorWithoutAReasonIsListed(t *testing.T) {
	text, err := os.ReadFile(errorsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "\n## Errors without a reason\n")
	if !ok {
		t.Fatal("no heading of the table")
	}
	row := func(begins string) (code string) {
		for line := range strings.Lines(table) {
			plain := strings.ReplaceAll(line, "`", "")
			if rest, ok := strings.CutPrefix(plain, "| "+strings.ReplaceAll(begins, "`", "")); ok {
				if cells := strings.Split(rest, " | "); len(cells) == 4 {
					return cells[1]
				}
			}
		}
		return ""
	}
	check := func(err error, begins string) {
		t.Helper()
		public := status.Public(slog.New(slog.DiscardHandler), err)
		if code := row(begins); code != public.Code().String() {
			t.Errorf("%q: the page says %q, the code is %v", begins, code, public.Code())
		}
	}
	sentinels := 0
	for i := range request.Outcomes {
		o := &request.Outcomes[i]
		if o.Err == nil {
			continue
		}
		sentinels++
		if info, ok := status.Detail(o.Err).(interface{ GetReason() string }); ok && info.GetReason() != "" && !errors.Is(o.Err, request.ErrInternalCommand) {
			continue // TestEveryReasonIsExplained checks it
		}
		check(o.Err, o.Err.Error())
	}
	if sentinels < 30 {
		t.Errorf("only %d errors were checked", sentinels)
	}
	for begins, err := range map[string]error{
		"*CODE*: *MESSAGE*":                      &request.RejectedError{Code: "CODE", Message: "MESSAGE"},
		"the entity is at sequence *N*, not *M*": &request.SequenceMismatchError{Expected: 1, Actual: 2},
		"the payload does not match the schema":  &request.InvalidPayloadError{Violations: []request.Violation{{Field: "a", Text: "is missing"}}},
		"the module ...":                         &request.InvalidModuleError{Reason: "the module is empty"},
		"guest fault: ...":                       &request.GuestFaultError{Message: "unreachable"},
		"... a second ... (with `RetryInfo`)":    &request.RateLimitedError{RetryAfter: time.Second},
		"shard *N* has no known leader":          &sharding.NotLeaderError{Shard: 3},
		"message *N* is expected first":          &request.GapError{Wanted: 3},
		"context deadline exceeded":              context.DeadlineExceeded,
		"the node that leads the shard is ":      request.ErrUnreachable,
	} {
		check(err, begins)
	}
}
