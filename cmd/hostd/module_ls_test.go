package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
)

// TestModuleTableIsBounded checks that a module with many types, long names,
// owners, limits and patterns does not make the table wide; describe shows the
// details.
func TestModuleTableIsBounded(t *testing.T) {
	m := &modulev1.Module{Digest: strings.Repeat("ab", 32), Name: strings.Repeat("n", 100), Version: strings.Repeat("9", 100), SignedBy: strings.Repeat("k", 100)}
	for i := range 20 {
		name := fmt.Sprintf("a-type-of-the-module-%d", i)
		m.EntityTypes, m.ActiveFor = append(m.EntityTypes, name), append(m.ActiveFor, name)
		m.Activations = append(m.Activations, &modulev1.Activation{EntityType: name, Owner: "group:team", Limits: &modulev1.Limits{RatePerSecond: 7},
			Sends: &modulev1.TypePatterns{Patterns: m.EntityTypes}})
	}
	var out bytes.Buffer
	moduleTable(&out, []*modulev1.Module{m})
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line); n > 320 {
			t.Errorf("a line of %d characters: %s", n, line)
		}
	}
	if !strings.Contains(out.String(), "a-type-of-the-module-0,+19") || !strings.Contains(out.String(), "abababababab ") {
		t.Error(out.String())
	}
	out.Reset()
	describeModule(&out, &modulev1.GetModuleResponse{Module: m})
	if !strings.Contains(out.String(), "limits of a-type-of-the-module-19") || !strings.Contains(out.String(), m.Digest) {
		t.Error(out.String())
	}
}
