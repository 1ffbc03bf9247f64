package mutants

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// areas are the subjects that a fault can break in addition to invariants.
var areas = []string{
	"audit", "authentication", "authorization", "backups", "certificates", "cluster",
	"fairness", "founding", "history", "limits", "modules", "schemas",
}

// The table of faults in README.md is between these lines.
const (
	tableBegins = "<!-- faults: begin (by go test ./tests/mutants -run TestFaultsAreListed -write) -->\n"
	tableEnds   = "<!-- faults: end -->\n"
)

// table formats the table of faults. Its first column names the invariant or
// area that a fault breaks, because readers look for it.
func table(all []fault) string {
	type row struct{ holds, text string }
	var rows []row
	for _, f := range all {
		files, by := []string{}, []string{}
		for _, e := range f.edits {
			files = append(files, "`"+e.file+"`")
		}
		if f.seeds > 0 {
			by = append(by, "simulator")
		}
		for _, args := range f.tests {
			by = append(by, "`"+strings.TrimPrefix(args[0], "./")+"`")
		}
		slices.Sort(files)
		rows = append(rows, row{f.holds[0], fmt.Sprintf("| %s | [%s](catalog/%s.txt) | %s | %s | %s |\n", strings.Join(f.holds, ", "),
			strings.SplitN(f.name, "-", 2)[0], f.name, f.says, strings.Join(slices.Compact(files), ", "), strings.Join(slices.Compact(by), ", "))})
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(rank(a.holds), rank(b.holds)), cmp.Compare(a.holds, b.holds))
	})
	var b strings.Builder
	b.WriteString("| breaks | number | with the fault | changed file | found by |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		b.WriteString(r.text)
	}
	return b.String()
}

// rank sorts invariants by their numbers, before areas.
func rank(holds string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(holds, "I"))
	if err != nil {
		return 1 << 10
	}
	return n
}

// invariants returns the numbers of the invariants in
// docs/internals/invariants.md.
func invariants(root string) ([]string, error) {
	page, err := os.ReadFile(filepath.Join(root, "docs/internals/invariants.md"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^\| (I\d+) \|`).FindAllStringSubmatch(string(page), -1) {
		all = append(all, m[1])
	}
	return all, nil
}
