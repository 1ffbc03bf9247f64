package host_test

import (
	"bufio"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/testkit/guest"
)

var rewriteDocs = flag.Bool("rewrite", false, "write the list of metrics anew instead of comparing with it")

// metricRows are the project's own metrics as a node serves them, as rows of a
// table: what comes with the runtime and the process is left out.
func metricRows(t *testing.T, addr string) []string {
	t.Helper()
	res, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	help, kinds := map[string]string{}, map[string]string{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		f := strings.SplitN(lines.Text(), " ", 4)
		if len(f) < 4 || !strings.HasPrefix(f[2], "hostd_") {
			continue
		}
		switch f[1] {
		case "HELP":
			help[f[2]] = f[3]
		case "TYPE":
			kinds[f[2]] = f[3]
		}
	}
	var rows []string
	for name := range help {
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", name, kinds[name], help[name]))
	}
	slices.Sort(rows)
	return rows
}

// TestMetricsAreListed: OPERATIONS.md lists what /metrics serves on the nodes of
// a cluster, and nothing else.
func TestMetricsAreListed(t *testing.T) {
	nodes := startCluster(t, 2, 4)
	c := dialNode(t, nodes[0])
	ctx := t.Context()
	if _, err := c.Upload(ctx, guest.Module{Good: "good"}.Build(), true); err != nil {
		t.Fatal(err)
	}
	s := c.Stream(client.StreamOptions{})
	for range 3 {
		if _, err := s.Call(ctx, client.Command{EntityType: "good", EntityID: "a", Name: "do"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	var rows []string
	for _, n := range nodes {
		rows = append(rows, metricRows(t, n.Addr())...)
	}
	slices.Sort(rows)
	if rows = slices.Compact(rows); len(rows) < 30 {
		t.Fatalf("only %d metrics are served", len(rows))
	}
	const path, begin = "../OPERATIONS.md", "| metric | kind | |\n|---|---|---|\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s has no table of metrics", path)
	}
	var listed []string
	for {
		line, after, _ := strings.Cut(rest, "\n")
		if !strings.HasPrefix(line, "|") {
			break
		}
		listed, rest = append(listed, line), after
	}
	if *rewriteDocs {
		if err := os.WriteFile(path, []byte(before+begin+strings.Join(rows, "\n")+"\n"+rest), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, row := range rows {
		if !slices.Contains(listed, row) {
			t.Errorf("is served and not listed: %s", row)
		}
	}
	for _, row := range listed {
		if !slices.Contains(rows, row) {
			t.Errorf("is listed and not served: %s", row)
		}
	}
}

// TestLatenciesResolveMicroseconds: every histogram of seconds has bounds down
// to a microsecond, but for that of timers, which a clock of milliseconds fires.
func TestLatenciesResolveMicroseconds(t *testing.T) {
	n, c := start(t, t.TempDir())
	defer stop(t, n)
	if _, err := c.Modules(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, err := http.Get("http://" + n.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	histograms, fine := map[string]bool{}, map[string]bool{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		line := lines.Text()
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" && f[3] == "histogram" && strings.HasPrefix(f[2], "hostd_") && strings.HasSuffix(f[2], "_seconds") {
			histograms[f[2]] = true
		}
		if name, _, ok := strings.Cut(line, "_bucket{"); ok && strings.Contains(line, `le="1e-06"`) {
			fine[name] = true
		}
	}
	if len(histograms) < 2 {
		t.Errorf("histograms of seconds: %v", histograms)
	}
	for name := range histograms {
		if !fine[name] && name != "hostd_timer_lateness_seconds" {
			t.Errorf("%s does not resolve a microsecond", name)
		}
	}
}
