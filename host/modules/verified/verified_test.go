package verified_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/host/modules/verified"
)

func TestRefusals(t *testing.T) {
	all := verified.Result{Revision: 7, All: true, Entities: 9}
	sample := verified.Result{Revision: 7, Entities: 3}
	with := func(r verified.Result, change func(*verified.Result)) *verified.Result {
		change(&r)
		return &r
	}
	for _, tt := range []struct {
		name     string
		required verified.Required
		result   *verified.Result
		accept   bool
		want     string // the name of the refusal; empty is none
		says     string
	}{
		{"nothing is asked for", "", nil, false, "", ""},
		{"off", verified.Off, with(all, func(r *verified.Result) { r.Faults = 1 }), false, "", ""},
		{"not verified", verified.Sample, nil, true, "VERIFY_REQUIRED", "module verify shop DIGEST"},
		{"all of none", verified.All, nil, false, "VERIFY_REQUIRED", "--all"},
		{"a sample for a sample", verified.Sample, &sample, false, "", ""},
		{"all for a sample", verified.Sample, &all, false, "", ""},
		{"a sample for all", verified.All, &sample, true, "VERIFY_REQUIRED", "a sample"},
		{"all", verified.All, &all, false, "", ""},
		{"another revision", verified.Sample, with(all, func(r *verified.Result) { r.Revision = 6 }), true, "VERIFY_REQUIRED", "under revision 6"},
		{"faults", verified.All, with(all, func(r *verified.Result) { r.Faults = 2 }), true, "VERIFY_FAILED", "2 of 9"},
		{"differences", verified.All, with(all, func(r *verified.Result) { r.Differences = 4 }), false, "VERIFY_FAILED", "4 of 9"},
		{"differences that are meant", verified.All, with(all, func(r *verified.Result) { r.Differences = 4 }), true, "", ""},
		{"all are cut", verified.All, with(all, func(r *verified.Result) { r.Entities, r.Cut = 0, 9 }), true, "VERIFY_FAILED", "were cut"},
		{"no entities", verified.All, with(all, func(r *verified.Result) { r.Entities = 0 }), false, "", ""},
	} {
		got := verified.Kept{Required: tt.required, Revision: 7, Result: tt.result}.Refusal("shop", tt.accept)
		switch {
		case tt.want == "" && got != nil:
			t.Errorf("%s: %v", tt.name, got)
		case tt.want != "" && (got == nil || got.Name != tt.want || !strings.Contains(got.Reason, tt.says) || got.About["entityType"] != "shop"):
			t.Errorf("%s: %+v, want %s", tt.name, got, tt.want)
		}
	}
}
