package rpc

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// TestCodes gives every error that can reach a caller its code.
func TestCodes(t *testing.T) {
	cases := []struct {
		name string
		err  error
		code connect.Code
	}{
		{"entity.ErrUnknownType", entity.ErrUnknownType, connect.CodeNotFound},
		{"entity.ErrUnknownCommand", entity.ErrUnknownCommand, connect.CodeNotFound},
		{"entity.ErrUnknownQuery", entity.ErrUnknownQuery, connect.CodeNotFound},
		{"entity.ErrCommandIDReused", entity.ErrCommandIDReused, connect.CodeInvalidArgument},
		{"entity.ErrBusy", entity.ErrBusy, connect.CodeResourceExhausted},
		{"entity.ErrOutboxFull", entity.ErrOutboxFull, connect.CodeResourceExhausted},
		{"entity.ErrLettersFull", entity.ErrLettersFull, connect.CodeResourceExhausted},
		{"entity.ErrReadOnly", entity.ErrReadOnly, connect.CodeResourceExhausted},
		{"entity.ErrOutcomeUnknown", entity.ErrOutcomeUnknown, connect.CodeDeadlineExceeded},
		{"entity.ErrNotApplied", entity.ErrNotApplied, connect.CodeUnavailable},
		{"entity.ErrNotServed", entity.ErrNotServed, connect.CodeUnavailable},
		{"journal.ErrInstalling", journal.ErrInstalling, connect.CodeUnavailable},
		{"entity.ErrStopped", entity.ErrStopped, connect.CodeUnavailable},
		{"entity.ErrDeadline", entity.ErrDeadline, connect.CodeDeadlineExceeded},
		{"entity.ErrParked", entity.ErrParked, connect.CodeInternal},
		{"entity.ErrForgotten", entity.ErrForgotten, connect.CodeAborted},
		{"entity.ErrCut", entity.ErrCut, connect.CodeFailedPrecondition},
		{"journal.CutError", &journal.CutError{First: 7}, connect.CodeOutOfRange},
		{"entity.ErrDamaged", entity.ErrDamaged, connect.CodeDataLoss},
		{"entity.ErrUnsupported", entity.ErrUnsupported, connect.CodeUnimplemented},
		{"entity.RejectedError", &entity.RejectedError{Code: "no", Message: "never"}, connect.CodeFailedPrecondition},
		{"entity.SequenceMismatchError", &entity.SequenceMismatchError{Expected: 1, Actual: 2}, connect.CodeFailedPrecondition},
		{"entity.GapError", &entity.GapError{Wanted: 3}, connect.CodeUnavailable},
		{"entity.GuestFaultError", &entity.GuestFaultError{Message: "unreachable"}, connect.CodeInternal},
		{"sharding.ErrInvalidName", sharding.ValidateID(""), connect.CodeInvalidArgument},
		{"sharding.NotLeaderError", &sharding.NotLeaderError{Shard: 3}, connect.CodeUnavailable},
		{"router.ErrUnreachable", router.ErrUnreachable, connect.CodeUnavailable},
		{"router.ErrMayComeThrough", router.ErrMayComeThrough, connect.CodeDeadlineExceeded},
		{"journal.ErrDamaged", journal.ErrDamaged, connect.CodeDataLoss},
		{"journal.ErrUnsupported", journal.ErrUnsupported, connect.CodeInternal},
		{"journal.ErrTooLarge", journal.ErrTooLarge, connect.CodeInternal},
		{"rpc.ErrNotReady", ErrNotReady, connect.CodeUnavailable},
		{"rpc.ErrModuleNotLoaded", ErrModuleNotLoaded, connect.CodeUnavailable},
		{"rpc.ErrNoMajority", ErrNoMajority, connect.CodeUnavailable},
		{"rpc.ErrUnknownModule", ErrUnknownModule, connect.CodeNotFound},
		{"rpc.ErrOverloaded", ErrOverloaded, connect.CodeResourceExhausted},
		{"rpc.InvalidModuleError", &InvalidModuleError{"bad"}, connect.CodeInvalidArgument},
		{"entity.RateLimitedError", &entity.RateLimitedError{RetryAfter: time.Second}, connect.CodeResourceExhausted},
		{"context.DeadlineExceeded", context.DeadlineExceeded, connect.CodeDeadlineExceeded},
		{"context.Canceled", context.Canceled, connect.CodeCanceled},
	}
	listed := make(map[string]bool)
	for _, c := range cases {
		listed[c.name] = true
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			public := publicError(slog.New(slog.DiscardHandler), err)
			if public.Code() != c.code || public.Message() != err.Error() {
				t.Errorf("%s: %v %q, want %v", c.name, public.Code(), public.Message(), c.code)
			}
		}
	}
	for dir, prefix := range map[string]string{"../entity": "entity.", "../router": "router.", "../../sharding": "sharding.", "../../journal": "journal."} {
		for _, name := range exportedErrors(t, dir) {
			if !listed[prefix+name] {
				t.Errorf("%s%s has no code in this table", prefix, name)
			}
		}
	}
}

// exportedErrors lists the exported sentinels and error types of a package.
func exportedErrors(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			out = append(out, errorNames(d)...)
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no errors", dir)
	}
	return out
}

func errorNames(d ast.Decl) (out []string) {
	g, ok := d.(*ast.GenDecl)
	if !ok {
		return nil
	}
	for _, spec := range g.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if strings.HasPrefix(n.Name, "Err") {
					out = append(out, n.Name)
				}
			}
		case *ast.TypeSpec:
			if s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Error") {
				out = append(out, s.Name.Name)
			}
		}
	}
	return out
}

// TestInternalErrorsStayInside: what has no code is told to the log alone.
func TestInternalErrorsStayInside(t *testing.T) {
	var logged strings.Builder
	log := slog.New(slog.NewTextHandler(&logged, nil))
	public := publicError(log, errors.New("read /var/lib/hostd/store/000001.sst: input/output error"))
	if public.Code() != connect.CodeInternal || public.Message() != "internal error" {
		t.Errorf("public: %v", public)
	}
	if !strings.Contains(logged.String(), "000001.sst") {
		t.Errorf("logged: %s", logged.String())
	}
}
