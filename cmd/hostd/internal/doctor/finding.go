package doctor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// Severity is how bad a finding is.
type Severity string

// Severities, the worst first.
const (
	Critical Severity = "critical" // something does not work, or data is at risk
	Warning  Severity = "warning"  // something will stop working, or one more fault would be critical
	Note     Severity = "note"     // unusual, and possibly intended
)

var rank = map[Severity]int{Critical: 0, Warning: 1, Note: 2}

// Finding is one thing that is wrong.
type Finding struct {
	ID       string   `json:"id"` // stable, for programs
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"` // such as "node n1" or "type counter"
	Problem  string   `json:"problem"`
	// Mend are the commands to run, in this order. A command for another machine
	// begins with "on NODE: ".
	Mend []string `json:"mend"`
	Doc  string   `json:"doc,omitempty"` // the page that explains it
}

// sorted orders findings by severity, and otherwise keeps their order.
func sorted(all []Finding) []Finding {
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	return all
}

// worst returns the severity of the worst finding; Note if there is none.
func worst(all []Finding) Severity {
	w := Note
	for _, f := range all {
		if rank[f.Severity] < rank[w] {
			w = f.Severity
		}
	}
	return w
}

// argument returns text that clients chose, such as an entity id, as one
// argument of a shell command that an operator can copy. Text with characters
// that a shell or a terminal interprets is quoted; text that begins like a flag
// follows the end of the flags.
func argument(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+,=", r))
	})
	out := s
	if !plain {
		out = "'" + strings.ReplaceAll(cli.Clean(s), "'", `'\''`) + "'"
	}
	if strings.HasPrefix(s, "-") {
		out = "-- " + out
	}
	return out
}
