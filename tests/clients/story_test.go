package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// want is the output that every client must produce. Each client uses its own
// account.
var want = []string{
	"open: balance 0, sequence 1, events 1, duplicate false",
	"deposit 100: balance 100, sequence 2",
	"withdraw 500: rejected insufficient_funds",
	"deposit 0: rejected invalid_amount",
	"deposit 5: balance 105, sequence 3, duplicate false",
	"deposit 5: balance 105, sequence 3, duplicate true",
	"withdraw 1 at 1: it is at 3",
	"deposit of what is misspelt: invalid_argument amuont",
	"20 deposits: balance 125, sequence 23",
	"query: balance 125, sequence 23",
	"state: balance 125, open true",
	"events: 23, in order true, the first opened, deposited 125",
}

// wantOfTyped is the additional output of clients with projections. The first
// run of the view fails in its third batch.
var wantOfTyped = []string{
	"view: enough, all false",
	"view: 23 events, deposited 125",
	"from newest: only later events true",
}

// config is the input of a client.
type config struct {
	Addresses []string `json:"addresses"` // the leader's address comes first
	ID        string   `json:"id"`
	Kill      string   `json:"kill"`
	Shard     uint32   `json:"shard"` // shard of the entity
}

// TestOneStory runs the same story with every kind of client on one cluster.
// Every client must produce the same output. During the story, the leader of
// the entity is killed. The client also receives events from this leader.
func TestOneStory(t *testing.T) {
	for _, s := range []struct {
		name string
		tell func(t *testing.T) func(context.Context, config) ([]string, error)
		more []string
	}{
		{"go", func(*testing.T) func(context.Context, config) ([]string, error) { return storyInGo }, wantOfTyped},
		{"typescript in node", storyInNode, wantOfTyped},
		{"curl", storyByCurl, nil},
	} {
		t.Run(s.name, func(t *testing.T) {
			tell := s.tell(t) // may skip the test, so call it before nodes are started
			stage := newTheatre(t)
			stage.play(t, strings.ReplaceAll(s.name, " ", "-"), append(slices.Clone(want), s.more...), tell)
		})
	}
}

// TestOneStoryInChromium is like TestOneStory, in a web page with a different
// origin than the nodes.
func TestOneStoryInChromium(t *testing.T) {
	tell := storyInChromium(t)
	newTheatre(t).play(t, "chromium", append(slices.Clone(want), wantOfTyped...), tell)
}

// theatre is a cluster, and a server through which a client kills a leader.
type theatre struct {
	cluster *testkit.Cluster
	client  *client.Client
	server  *httptest.Server
	kill    chan chan error
}

func newTheatre(t *testing.T) *theatre {
	t.Helper()
	s := &theatre{kill: make(chan chan error)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /kill", func(w http.ResponseWriter, r *http.Request) {
		done := make(chan error, 1)
		select {
		case s.kill <- done:
		case <-r.Context().Done():
			return
		}
		if err := <-done; err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><script type="module">
import { story } from "/scripts/scenario.js";
const config = JSON.parse(decodeURIComponent(location.hash.slice(1)));
try { window.told = await story(config); } catch (e) { window.told = [String(e) + "\n" + e.stack]; }
</script>`)
	})
	mux.Handle("GET /scripts/", http.StripPrefix("/scripts/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.FileServer(http.Dir(script.dir)).ServeHTTP(w, r)
	})))
	s.server = httptest.NewServer(mux)
	t.Cleanup(s.server.Close)
	s.cluster = testkit.StartCluster(t, 3, testkit.ClusterOptions{Flags: []string{"--allow-origins", s.server.URL}})
	s.cluster.Push("account")
	s.client = s.cluster.Client(client.Options{Timeout: testkit.Patience})
	return s
}

// leader returns the index of the node that leads an account's shard.
func (s *theatre) leader(ctx context.Context, id string) (int, error) {
	for {
		e, err := s.client.Entity(ctx, "account", id)
		if err != nil {
			return 0, err
		}
		for i, n := range s.cluster.Nodes() {
			if n.ID() == e.GetNodeId() {
				return i, nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond): // retry until there is a leader
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// play runs the story with a client and compares the output.
func (s *theatre) play(t *testing.T, id string, want []string, tell func(context.Context, config) ([]string, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := s.leader(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	c := config{ID: id, Kill: s.server.URL + "/kill", Shard: client.ShardOf("account", id, uint32(len(s.cluster.Shards(0))-1))}
	for i := range s.cluster.Nodes() {
		c.Addresses = append(c.Addresses, s.cluster.Node((first+i)%3).API())
	}
	type outcome struct {
		told []string
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		told, err := tell(ctx, c)
		ended <- outcome{told, err}
	}()
	kills := 0
	for {
		select {
		case done := <-s.kill:
			at, err := s.leader(ctx, id)
			if err == nil {
				s.cluster.Kill(at)
				kills++
			}
			done <- err
		case o := <-ended:
			if o.err != nil {
				t.Fatalf("the story ended early: %v, after %q", o.err, o.told)
			}
			if !slices.Equal(o.told, want) {
				t.Errorf("the story is\n%s\nwant\n%s", strings.Join(o.told, "\n"), strings.Join(want, "\n"))
			}
			if kills != 1 {
				t.Errorf("%d nodes were killed, want 1", kills)
			}
			return
		}
	}
}

// killed kills the leader.
func killed(ctx context.Context, c config) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Kill, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("no node was killed: %s", res.Status)
	}
	return nil
}

// node returns the path of Node.js, or skips the test.
func node(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node")
	}
	return path
}

func storyInNode(t *testing.T) func(context.Context, config) ([]string, error) {
	runtime, dir := node(t), compiled(t)
	return func(ctx context.Context, c config) (told []string, err error) {
		text, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, runtime, "main.js", string(text))
		cmd.Dir = dir
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, errs.Bytes())
		}
		return told, json.Unmarshal(out, &told)
	}
}

func storyInChromium(t *testing.T) func(context.Context, config) ([]string, error) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("needs chromium")
	}
	compiled(t)
	return func(ctx context.Context, c config) ([]string, error) {
		options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.DisableGPU,
			chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(testkit.Patience))
		ctx, cancel := chromedp.NewExecAllocator(ctx, options...)
		defer cancel()
		ctx, cancel = chromedp.NewContext(ctx)
		defer cancel()
		text, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		if _, err := chromedp.Run(ctx, chromedp.Navigate(strings.TrimSuffix(c.Kill, "/kill")+"/page#"+url.PathEscape(string(text)))); err != nil {
			return nil, err
		}
		return chromedp.Run(ctx, chromedp.Poll[[]string]("window.told", chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	}
}

// digestLine matches the digest of a module, which differs between releases of
// Go.
var digestLine = regexp.MustCompile(`SHA-256 [0-9a-f]{64}`)

// TestGoClientIsCurrent checks that the client in the folder account is the
// generated client.
func TestGoClientIsCurrent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "account")
	generate(t, "go", dir)
	fresh, err := os.ReadFile(filepath.Join(dir, "hostd.go"))
	if err != nil {
		t.Fatal(err)
	}
	if fresh = digestLine.ReplaceAll(fresh, []byte("SHA-256 of what the tests have built")); *rewrite {
		if err := os.WriteFile("account/hostd.go", fresh, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile("account/hostd.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(fresh, committed) {
		t.Error("account/hostd.go is not what is generated: -rewrite writes it anew")
	}
}
