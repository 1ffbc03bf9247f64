package host_test

import (
	"bufio"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/certs"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// labelName matches the beginning of each label in a sample.
var labelName = regexp.MustCompile(`[{,]([a-z_]+)="`)

// metricRows returns the metrics of the project that a node serves, as rows of
// a table. Metrics of the runtime and the process are left out. metricRows sets
// the labels of each metric that has a sample, in the format of a row.
func metricRows(t *testing.T, addr string, labels map[string]string) []string {
	t.Helper()
	res, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	help, kinds := map[string]string{}, map[string]string{}
	sampled := func(line string) {
		name := line[:strings.IndexAny(line, "{ ")]
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, part); ok && kinds[base] == "histogram" {
				name = base
			}
		}
		var has []string
		for _, found := range labelName.FindAllStringSubmatch(line, -1) {
			if found[1] != "le" {
				has = append(has, "`"+found[1]+"`")
			}
		}
		slices.Sort(has)
		labels[name] = cmp.Or(strings.Join(has, ", "), "-")
	}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "hostd_") {
			sampled(lines.Text())
			continue
		}
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

// TestReferenceListsServedMetrics: the reference lists exactly the metrics that the nodes
// of a cluster serve.
func TestReferenceListsServedMetrics(t *testing.T) {
	nodes := startCluster(t, 2, 4)
	c := dialNode(t, nodes[0])
	ctx := t.Context()
	if _, err := c.Upload(ctx, guest.Module{Good: "good"}.Build(), true); err != nil {
		t.Fatal(err)
	}
	up, err := c.Upload(ctx, guest.Module{Good: "good", MemoryPages: 3}.Build(), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ActivateModule(ctx, c, &modulev1.ActivateModuleRequest{EntityType: "good", Digest: up.Digest, Rollout: &modulev1.RolloutPlan{Share: 1}}); err != nil {
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
	labels := map[string]string{}
	for _, n := range nodes {
		rows = append(rows, metricRows(t, n.Addr(), labels)...)
	}
	rows = append(rows, metricRows(t, startSecured(t).Addr(), labels)...)
	slices.Sort(rows)
	if rows = slices.Compact(rows); len(rows) < 30 {
		t.Fatalf("only %d metrics are served", len(rows))
	}
	const path = "../docs/reference/metrics.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(strings.TrimSpace(line), " | "); len(cells) == 4 && strings.HasPrefix(line, "| `") {
			listed = append(listed, strings.Join([]string{cells[0], cells[1], cells[3]}, " | "))
			sorted := strings.Split(cells[2], ", ")
			slices.Sort(sorted)
			if got, sampled := labels[strings.Trim(cells[0], "| `")]; sampled && got != strings.Join(sorted, ", ") {
				t.Errorf("%s is served with the labels %s and listed with %s", cells[0], got, cells[2])
			}
		}
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

// startSecured starts a node with TLS and authentication, and makes a call that
// is rejected.
func startSecured(t *testing.T) *host.Node {
	t.Helper()
	dir := t.TempDir()
	line, err := authn.TokenLine("somebody", authn.NewToken(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	authority, err := certs.CreateAuthority(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	cert, key := certs.NodeFiles(dir, "n1")
	if err := authority.Issue(cert, key, certs.Request{Name: "n1", Cluster: config.Default().ClusterName, Hosts: []string{"127.0.0.1"}}); err != nil {
		t.Fatal(err)
	}
	trust := filepath.Join(dir, "trust")
	if err := os.WriteFile(trust, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n, c := startWith(t, t.TempDir(), func(cfg *config.Config) {
		cfg.ModuleTrustFile, cfg.ModuleSignatures = trust, config.SignaturesWarn
		cfg.OTLPEndpoint = "http://127.0.0.1:9" // nothing listens there
		cfg.Auth, cfg.TokenFile = config.AuthAllow, tokens
		cfg.TLSMode, cfg.TLSCertFile, cfg.TLSKeyFile = config.TLSAllow, cert, key
		cfg.PeerTLSMode, cfg.PeerCertFile, cfg.PeerKeyFile = config.TLSAllow, cert, key
		cfg.PeerCAFile, _ = certs.AuthorityFiles(dir)
	})
	t.Cleanup(func() { stop(t, n) })
	if _, err := c.Upload(t.Context(), guest.Module{Good: "good"}.Build(), true); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+n.Addr()+"/nothing", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer wrong")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong token is answered %s", res.Status)
	}
	return n
}

// TestLatenciesResolveMicroseconds: every histogram in seconds has bounds down
// to a microsecond, except the histogram of timers, whose clock has a
// resolution of milliseconds.
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
