package abi

import (
	"slices"
	"testing"
)

// Settings are read as they were written; a truncated setting ends the
// iteration, and nothing beyond it is read.
func TestSettings(t *testing.T) {
	body := AppendSetting(AppendSetting(nil, "a", "1"), "b", "")
	var request Request
	if err := ParseRequest(&request, AppendName(AppendSettings(nil, body), "add")); err != nil || string(request.Settings) != string(body) || string(request.Name) != "add" {
		t.Fatalf("%q, %v", request.Settings, err)
	}
	read := func(body []byte) (out []string) {
		for name, value := range Settings(body) {
			out = append(out, string(name)+"="+string(value))
		}
		return out
	}
	if got := read(request.Settings); !slices.Equal(got, []string{"a=1", "b="}) {
		t.Errorf("read: %q", got)
	}
	for n := range body {
		if got := read(body[:n]); len(got) > 1 || len(got) == 1 && got[0] != "a=1" {
			t.Errorf("of %d bytes: %q", n, got)
		}
	}
	for range Settings(body) {
		break // the iteration stops early
	}
}
