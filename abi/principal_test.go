package abi

import (
	"bytes"
	"slices"
	"testing"
)

func TestPrincipal(t *testing.T) {
	for _, groups := range [][]string{nil, {"staff"}, {"a", "", "b"}} {
		frame := AppendPrincipal(nil, "jwt", "bo", groups...)
		var r Request
		if err := ParseRequest(&r, append(AppendName(nil, "n"), frame...)); err != nil || !bytes.Equal(r.Principal, frame[HeaderBytes:]) {
			t.Fatalf("%x, %v", r.Principal, err)
		}
		p, err := DecodePrincipal(r.Principal)
		var got []string
		for g := range p.Groups() {
			got = append(got, string(g))
		}
		if err != nil || string(p.Kind) != "jwt" || string(p.Name) != "bo" || !slices.Equal(got, groups) {
			t.Errorf("%+v, %q, %v", p, got, err)
		}
		for n := range r.Principal {
			if p, err := DecodePrincipal(r.Principal[:n]); err == nil && n < 9 {
				t.Errorf("%d bytes are %+v", n, p)
			}
		}
	}
	var r Request
	if err := ParseRequest(&r, AppendName(nil, "n")); err != nil || r.Principal != nil {
		t.Errorf("of nobody: %x, %v", r.Principal, err)
	}
}
