package host_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// scrape returns what a node serves at /metrics.
func scrape(t *testing.T, n *host.Node) string {
	t.Helper()
	res, err := http.Get("http://" + n.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", res.Status, err)
	}
	return string(text)
}

// queries returns the PromQL expressions in the files under deploy, by file.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	files, err := filepath.Glob("../deploy/grafana/*.json")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "../deploy/prometheus/rules.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".yaml") {
			for _, m := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(string(text), -1) {
				out[file] = append(out[file], m[1])
			}
			continue
		}
		var content any
		if err := json.Unmarshal(text, &content); err != nil {
			t.Fatal(file, err)
		}
		var walk func(any)
		walk = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, x := range v {
					walk(x)
				}
			case map[string]any:
				for key, x := range v {
					if s, ok := x.(string); ok && (key == "expr" || key == "query" && strings.HasPrefix(s, "label_values")) {
						out[file] = append(out[file], s)
					}
					walk(x)
				}
			}
		}
		walk(content)
	}
	if len(out) != len(files)+1 {
		t.Errorf("of %d files only some ask for anything: %v", len(files)+1, out)
	}
	return out
}

// TestDashboardsAndAlertsUseServedMetrics: running nodes serve every metric and
// label in a dashboard or an alert, and their metrics are well formed.
func TestDashboardsAndAlertsUseServedMetrics(t *testing.T) {
	nodes := startCluster(t, 2, 4)
	c := dialNode(t, nodes[0])
	if _, err := c.Upload(t.Context(), guest.Module{Good: "good"}.Build(), true); err != nil {
		t.Fatal(err)
	}
	s := c.Stream(client.StreamOptions{})
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		if _, err := s.Call(t.Context(), client.Command{EntityType: "good", EntityID: id, Name: "do"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var all strings.Builder
	for _, n := range append(nodes, startSecured(t)) {
		text := scrape(t, n)
		all.WriteString(text)
		if path, err := exec.LookPath("promtool"); err != nil {
			t.Log("promtool, which comes with Prometheus, is not there to check what is served")
		} else {
			check := exec.Command(path, "check", "metrics")
			check.Stdin = strings.NewReader(text)
			if out, err := check.CombinedOutput(); err != nil && !onlyAsLibraryDoes(string(out)) {
				t.Errorf("promtool: %v\n%s", err, out)
			}
		}
	}
	labels := map[string][]string{} // by metric
	sample, label := regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`), regexp.MustCompile(`([a-z_]+)="`)
	for _, m := range sample.FindAllStringSubmatch(all.String(), -1) {
		labels[m[1]] = append(labels[m[1]], "instance", "job") // Prometheus adds these
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels[m[1]], l[1]) {
				labels[m[1]] = append(labels[m[1]], l[1])
			}
		}
	}
	const optional = "hostd_type_signature_faults" // has no series if there is no fault
	labels[optional] = []string{"instance", "entity_type", "reason"}
	metric := regexp.MustCompile(`\b((?:hostd|process|go)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher, by := regexp.MustCompile(`([a-z_]+)(?:=|=~|!=|!~)"`), regexp.MustCompile(`by \(([^)]*)\)`)
	for file, asked := range queries(t) {
		for _, q := range asked {
			found := metric.FindAllStringSubmatch(q, -1)
			if len(found) == 0 {
				t.Errorf("%s: %q names no metric", file, q)
			}
			for _, m := range found {
				served, ok := labels[m[1]]
				if !ok {
					t.Errorf("%s: %s is not served", file, m[1])
					continue
				}
				var wants []string
				for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
					wants = append(wants, l[1])
				}
				for _, list := range by.FindAllStringSubmatch(q, -1) {
					wants = append(wants, strings.Split(list[1], ", ")...)
				}
				for _, l := range wants {
					if !slices.Contains(served, l) {
						t.Errorf("%s: %s has no label %s, as %q asks for", file, m[1], l, q)
					}
				}
			}
		}
	}
}

// onlyAsLibraryDoes reports whether promtool complains only about metrics of
// the Prometheus client library.
func onlyAsLibraryDoes(said string) bool {
	for line := range strings.Lines(said) {
		if !strings.HasPrefix(line, "go_") && !strings.HasPrefix(line, "process_") {
			return false
		}
	}
	return true
}

// value returns the value of a series in a scrape.
func value(t *testing.T, text, series string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("%s is not served", series)
	return 0
}

// TestCommandsAreCountedByStage: a node counts each command once in each stage
// that it passes. A rejected command has no commit stage, and a duplicate has
// no stages.
func TestCommandsAreCountedByStage(t *testing.T) {
	n, c := start(t, t.TempDir())
	defer stop(t, n)
	if _, err := c.Upload(t.Context(), guest.Module{Good: "good"}.Build(), true); err != nil {
		t.Fatal(err)
	}
	const commands = 20
	began := time.Now()
	for i := range commands {
		for range 2 { // the second is a duplicate
			if _, err := c.Send(t.Context(), client.Command{EntityType: "good", EntityID: "a", Name: "do", ID: strconv.Itoa(i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	took := time.Since(began).Seconds()
	text, sum := scrape(t, n), 0.0
	for _, stage := range []string{"queue", "guest", "commit"} {
		labels := `{entity_type="good",stage="` + stage + `"}`
		if got := value(t, text, "hostd_command_seconds_count"+labels); got != commands {
			t.Errorf("%s: %v commands", stage, got)
		}
		sum += value(t, text, "hostd_command_seconds_sum"+labels)
	}
	if sum <= 0 || sum > took {
		t.Errorf("the stages took %v s of %v s", sum, took)
	}
}

// TestLostQuorumIsInMetrics: the metrics of a node that loses contact with
// the other nodes show the lost quorum.
func TestLostQuorumIsInMetrics(t *testing.T) {
	nodes := startCluster(t, 3, 4)
	if got := value(t, scrape(t, nodes[0]), "hostd_shards_without_quorum"); got != 0 {
		t.Fatalf("%v shards have no quorum with all nodes", got)
	}
	stop(t, nodes[1])
	stop(t, nodes[2])
	for end := time.Now().Add(time.Minute); value(t, scrape(t, nodes[0]), "hostd_shards_without_quorum") == 0 || value(t, scrape(t, nodes[0]), "hostd_shards_without_leader") == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the node says nothing of the quorum that it lost")
		}
	}
}
