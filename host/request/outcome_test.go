package request

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestEveryErrorHasAnOutcome: every exported error of this package is in the
// table, and every wire number is unique.
func TestEveryErrorHasAnOutcome(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	table, err := parser.ParseFile(token.NewFileSet(), "outcome.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{"ErrMayStillApply": true} // it wraps ErrOutcomeUnknown
	ast.Inspect(table, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			used[id.Name] = true
		}
		return true
	})
	exported := 0
	ast.Inspect(file, func(n ast.Node) bool {
		var name string
		switch x := n.(type) {
		case *ast.ValueSpec:
			name = x.Names[0].Name
		case *ast.TypeSpec:
			name = x.Name.Name
		case *ast.FuncDecl:
			return false
		}
		if strings.HasPrefix(name, "Err") || strings.HasSuffix(name, "Error") {
			if exported++; !used[name] {
				t.Errorf("%s is not in the table of outcomes", name)
			}
		}
		return true
	})
	if exported < 25 {
		t.Errorf("only %d errors are looked at", exported)
	}
	numbers := map[uint64]bool{}
	for i := range Outcomes {
		o := &Outcomes[i]
		if numbers[o.Wire] || (o.Err == nil) != (o.Wire < 16 || o.Wire == WireDenied) || o.Code == 0 || (o.Err == nil) == (o.has == nil) {
			t.Errorf("%+v: a number that is used twice or reserved, no code, or both a sentinel and data", o)
		}
		numbers[o.Wire] = true
	}
}

// TestFirstMatchingOutcomeWins: if an error wraps several errors of the table,
// its outcome is that of the error that says how far the request got.
func TestFirstMatchingOutcomeWins(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Retry
		wire uint64
	}{
		{fmt.Errorf("%w: %w", ErrNotApplied, ErrBusy), Resend, 17},
		{fmt.Errorf("%w: %w", ErrOutcomeUnknown, ErrStopped), ResendSameID, 16},
		{ErrMayStillApply, ResendSameID, 16},
		{&RateLimitedError{}, ReportErrorOfAny, WireRateLimited},
		{errors.Join(errors.New("read"), ErrDamaged), ReportError, 28},
	} {
		if o := OutcomeOf(c.err); o == nil || o.Retry != c.want || o.Wire != c.wire {
			t.Errorf("%v: %+v, want retry %d and number %d", c.err, o, c.want, c.wire)
		}
	}
	if o := OutcomeOf(errors.New("no such file")); o != nil || RetryOf(nil) != ReportError {
		t.Errorf("%+v is the outcome of an error that is in no table", o)
	}
	if s := Sentinel(19); s != ErrBusy || Sentinel(WireRejected) != nil || Sentinel(255) != nil {
		t.Errorf("sentinel 19 is %v", s)
	}
	if !strings.Contains(ErrMayStillApply.Error(), ErrOutcomeUnknown.Error()) {
		t.Error("the text does not say that the outcome is unknown")
	}
}
