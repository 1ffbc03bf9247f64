package leaderproxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/principal"
)

// TestForwardedCallNamesItsCaller: a node that calls another node names the caller for which
// it calls. Only the handler for nodes trusts that statement.
func TestForwardedCallNamesItsCaller(t *testing.T) {
	var on *http.Client // the client for the next hop; nil: this is the last
	var where string
	last := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := leaderproxy.SaidOf(r.Context())
		if said == nil {
			io.WriteString(w, "a client")
			return
		}
		if leaderproxy.Caller(r.Context()) != said.Caller {
			t.Error("the caller is another one")
		}
		io.WriteString(w, principal.HeaderOf(*said))
	})
	nodes := httptest.NewServer(leaderproxy.Handler(last))
	defer nodes.Close()
	clients := httptest.NewServer(leaderproxy.Unsaid(leaderproxy.Handler(last)))
	defer clients.Close()
	where = strings.TrimSuffix(leaderproxy.Path, "/") + "/hostd.entity.v1.EntityService/GetEntity"
	get := func(c *http.Client, ctx context.Context, url, header string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+where, nil)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			r.Header.Set(principal.Header, header)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	ann := `{"kind":"jwt","name":"ann","groups":["staff"]}`
	if code, said := get(http.DefaultClient, t.Context(), nodes.URL, ann); code != http.StatusOK || said != ann {
		t.Errorf("a node is not believed: %d, %s", code, said)
	}
	if code, said := get(http.DefaultClient, t.Context(), clients.URL, ann); code != http.StatusOK || said != "" {
		t.Errorf("a client is believed: %d, %s", code, said)
	}
	for _, bad := range []string{"{}", "ann", `{"kind": "jwt"}`} {
		if code, said := get(http.DefaultClient, t.Context(), nodes.URL, bad); code != http.StatusBadRequest {
			t.Errorf("%s: %d, %s", bad, code, said)
		}
	}
	// A forwarded caller is passed to the next hop, with the roles that allow
	// the call.
	on = leaderproxy.Telling(&http.Client{})
	passing := httptest.NewServer(leaderproxy.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if r.Header.Get("X-Decided") != "" {
			ctx = leaderproxy.WithRoles(ctx, 7)
		}
		_, said := get(on, ctx, nodes.URL, "")
		io.WriteString(w, said)
	})))
	defer passing.Close()
	if code, said := get(http.DefaultClient, t.Context(), passing.URL, ann); code != http.StatusOK || said != ann {
		t.Errorf("two nodes on: %d, %s", code, said)
	}
	if code, said := get(http.DefaultClient, t.Context(), passing.URL, ""); code != http.StatusOK || said != "" {
		t.Errorf("of nobody, two nodes on: %d, %s", code, said)
	}
	if code, said := get(on, leaderproxy.WithRoles(t.Context(), 7), nodes.URL, ann); code != http.StatusOK || said != ann {
		t.Errorf("of who was not asked: %d, %s", code, said)
	}
}
