package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for name, write := range generated {
		want, err := write()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is not what the code says: run make deploy", name)
		}
	}
}

// promtool runs Prometheus' tool in the directory of the rules.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool, which comes with Prometheus")
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = "../prometheus"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestAlertsFire checks that each alert fires on its own series, and on no
// other.
func TestAlertsFire(t *testing.T) {
	promtool(t, "check", "rules", "rules.yaml")
	promtool(t, "test", "rules", "rules_test.yaml")
}

// TestDashboardQueriesParse checks that Prometheus can parse every query
// of a panel.
func TestDashboardQueriesParse(t *testing.T) {
	var all []rule
	for _, d := range []dashboard{overview, types, internals} {
		for _, r := range d.rows {
			for _, p := range r.panels {
				if p.title == "" || len(p.lines) == 0 {
					t.Errorf("%s: a panel of %q has no title or no query", d.uid, r.title)
				}
				for _, l := range p.lines {
					expr := strings.ReplaceAll(l.expr, "$__rate_interval", "5m")
					all = append(all, rule{Alert: "A" + string(rune('a'+len(all)%26)) + strings.Repeat("x", len(all)/26), Expr: expr})
				}
			}
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d queries", len(all))
	}
	text, err := yamlOf(map[string]any{"groups": []map[string]any{{"name": "queries", "rules": all}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", path)
}

// TestAlertRunbooksExist checks that the page of each alert exists and has the
// alert's heading.
func TestAlertRunbooksExist(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for _, a := range alerts {
		page, anchor, _ := strings.Cut(a.page, "#")
		text, err := os.ReadFile(filepath.Join("../../docs/operating", page))
		if err != nil {
			t.Errorf("%s: %v", a.name, err)
			continue
		}
		var anchors []string
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			anchors = append(anchors, strings.ReplaceAll(strings.ToLower(m[1]), " ", "-"))
		}
		if anchor != "" && !slices.Contains(anchors, anchor) {
			t.Errorf("%s: %s has no heading %q", a.name, page, anchor)
		}
	}
}
