package outside

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// provider charges money, once for each key. Its first answer to each key is
// lost.
type provider struct {
	mu     sync.Mutex
	taken  map[string]int
	asked  map[string]int
	bodies map[string]string
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	body := make([]byte, 100)
	n, _ := r.Body.Read(body)
	if p.asked[key]++; p.taken[key] == 0 {
		p.taken[key], p.bodies[key] = 1, string(body[:n])
		http.Error(w, "what is before the provider has lost its answer", http.StatusBadGateway)
		return
	}
	fmt.Fprintf(w, `{"receipt":"of %s"}`, key)
}

// TestGuidePrograms runs the programs on the page. Each program ends and starts
// again between any two of its steps. Nevertheless, each payment must take
// effect once.
func TestGuidePrograms(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guide/outside.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range []string{"payment/main.go", "act.go", "view.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	shown := 0
	for i, part := range strings.Split(string(page), "```") {
		if block, is := strings.CutPrefix(part, "go\n"); is && i%2 == 1 {
			if shown++; !strings.Contains(code.String(), strings.TrimSuffix(block, "\n")) {
				t.Errorf("this code of the page is in no program:\n%s", block)
			}
		}
	}
	if shown < 3 {
		t.Errorf("the page shows %d pieces of code", shown)
	}

	c := testkit.StartCluster(t, 1, testkit.ClusterOptions{})
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	payment := testkit.BuildGuest(t, "tests/e2e/outside/payment")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	if _, err := cl.Upload(ctx, payment, true); err != nil {
		t.Fatal(err)
	}
	p := &provider{taken: map[string]int{}, asked: map[string]int{}, bodies: map[string]string{}}
	server := httptest.NewServer(p)
	defer server.Close()
	dir := t.TempDir()
	place, table := filepath.Join(dir, "place.json"), filepath.Join(dir, "totals.json")

	const payments = 4
	for i := range payments {
		if _, err := cl.Send(ctx, client.Command{EntityType: "payment", EntityID: fmt.Sprint("p", i), Name: "pay", Data: fmt.Appendf(nil, `{"cents":%d}`, i+1)}); err != nil {
			t.Fatal(err)
		}
		// The program ends at each payment, because the provider's answer is lost.
		if err := act(ctx, cl, server.URL, place); err == nil || ctx.Err() != nil {
			t.Fatalf("the first answer was not lost: %v", err)
		}
		run(t, ctx, func(ctx context.Context) error { return act(ctx, cl, server.URL, place) },
			fmt.Sprintf("payment %d is settled", i), func() bool {
				events, err := eventsOf(ctx, cl, fmt.Sprint("p", i))
				return err == nil && len(events) == 2
			})
		run(t, ctx, func(ctx context.Context) error { return view(ctx, cl, table) },
			fmt.Sprintf("payment %d is in the view", i), func() bool {
				got := totals{}
				return load(table, &got) == nil && len(got.Asked) == i+1
			})
	}
	// If the cursor is lost, the program starts from the beginning, but does
	// nothing twice either.
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	run(t, ctx, func(ctx context.Context) error { return act(ctx, cl, server.URL, place) },
		"all is read again", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			for i := range payments {
				if p.asked[fmt.Sprintf("payment/p%d/1", i)] < 3 {
					return false
				}
			}
			return true
		})
	if len(p.taken) != payments {
		t.Errorf("%d payments were made, not %d: %v", len(p.taken), payments, p.taken)
	}
	for i := range payments {
		key := fmt.Sprintf("payment/p%d/1", i)
		if got := p.bodies[key]; got != fmt.Sprintf(`{"cents":%d}`, i+1) {
			t.Errorf("%s was asked for with %q", key, got)
		}
		events, err := eventsOf(ctx, cl, fmt.Sprint("p", i))
		if want := `requested {"cents":` + fmt.Sprint(i+1) + `} settled {"receipt":"of ` + key + `"}`; err != nil || strings.Join(events, " ") != want {
			t.Errorf("p%d has %q, want %s, %v", i, events, want, err)
		}
	}
	got := totals{}
	if err := load(table, &got); err != nil || got.Cents != payments*(payments+1)/2 || len(got.Asked) != payments || got.Cursor == "" {
		t.Errorf("the view is %+v, %v", got, err)
	}
}

// run runs a program until a condition holds, and ends it.
func run(t *testing.T, ctx context.Context, program func(context.Context) error, what string, until func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, testkit.Patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- program(ctx) }()
	for !until() {
		select {
		case err := <-ended:
			t.Fatalf("before %s it ended: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) && client.CodeOf(err) != connect.CodeCanceled {
		t.Fatalf("it ended with %v", err)
	}
}

// eventsOf returns the events of a payment.
func eventsOf(ctx context.Context, c *client.Client, id string) (out []string, err error) {
	for e, err := range c.ReadEvents(ctx, client.EventRange{EntityType: "payment", EntityID: id}) {
		if err != nil {
			return nil, err
		}
		out = append(out, e.Type+" "+string(e.Data))
	}
	return out, nil
}
