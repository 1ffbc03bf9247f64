package modules_test

import (
	"strings"
	"testing"

	"github.com/hostd/hostd/host/modules"
)

func TestVerificationRefusals(t *testing.T) {
	all := modules.VerifyResult{Revision: 7, All: true, Entities: 9}
	sample := modules.VerifyResult{Revision: 7, Entities: 3}
	with := func(r modules.VerifyResult, change func(*modules.VerifyResult)) *modules.VerifyResult {
		change(&r)
		return &r
	}
	for _, tt := range []struct {
		name     string
		required modules.VerifyRequired
		result   *modules.VerifyResult
		accept   bool
		want     string // name of the refusal; empty if there is none
		says     string
	}{
		{"nothing is asked for", "", nil, false, "", ""},
		{"off", modules.VerifyOff, with(all, func(r *modules.VerifyResult) { r.Faults = 1 }), false, "", ""},
		{"not verified", modules.VerifySample, nil, true, "VERIFY_REQUIRED", "module verify shop DIGEST"},
		{"all of none", modules.VerifyAll, nil, false, "VERIFY_REQUIRED", "--all"},
		{"a sample for a sample", modules.VerifySample, &sample, false, "", ""},
		{"all for a sample", modules.VerifySample, &all, false, "", ""},
		{"a sample for all", modules.VerifyAll, &sample, true, "VERIFY_REQUIRED", "a sample"},
		{"all", modules.VerifyAll, &all, false, "", ""},
		{"another revision", modules.VerifySample, with(all, func(r *modules.VerifyResult) { r.Revision = 6 }), true, "VERIFY_REQUIRED", "under revision 6"},
		{"faults", modules.VerifyAll, with(all, func(r *modules.VerifyResult) { r.Faults = 2 }), true, "VERIFY_FAILED", "2 of 9"},
		{"differences", modules.VerifyAll, with(all, func(r *modules.VerifyResult) { r.Differences = 4 }), false, "VERIFY_FAILED", "4 of 9"},
		{"differences that are meant", modules.VerifyAll, with(all, func(r *modules.VerifyResult) { r.Differences = 4 }), true, "", ""},
		{"all are cut", modules.VerifyAll, with(all, func(r *modules.VerifyResult) { r.Entities, r.Truncated = 0, 9 }), true, "VERIFY_FAILED", "have truncated events"},
		{"no entities", modules.VerifyAll, with(all, func(r *modules.VerifyResult) { r.Entities = 0 }), false, "", ""},
	} {
		got := modules.StoredVerification{Required: tt.required, Revision: 7, Result: tt.result}.Refusal("shop", tt.accept)
		switch {
		case tt.want == "" && got != nil:
			t.Errorf("%s: %v", tt.name, got)
		case tt.want != "" && (got == nil || got.Name != tt.want || !strings.Contains(got.Reason, tt.says) || got.About["entityType"] != "shop"):
			t.Errorf("%s: %+v, want %s", tt.name, got, tt.want)
		}
	}
}
