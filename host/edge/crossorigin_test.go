package edge_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/edge"
)

// TestPagesOfAllowedOrigins: a browser learns which origins may call the
// node, and lets pages of these origins call it. Even these pages may not
// call the services between nodes.
func TestPagesOfAllowedOrigins(t *testing.T) {
	const app = "https://app.example"
	between := "/hostd.peer.v1.PeerService/"
	open := map[string]http.Handler{between: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	some := serve(t, edge.Options{Origins: []string{app}, Internal: open})
	all := serve(t, edge.Options{Origins: []string{"*"}, Internal: open})
	none := serve(t, edge.Options{Internal: open})
	for _, c := range []struct {
		site         *site
		origin, path string
		served, told bool
	}{
		{some, app, "/e/counter/a/add", true, true},
		{some, app, entityPath + "SendCommand", true, true},
		{some, "http://app.example", "/e/counter/a/add", false, false},
		{some, "https://evil.example", "/e/counter/a/add", false, false},
		{some, "null", "/e/counter/a/add", false, false},
		{some, app, between + "Probe", false, true},
		{all, "https://evil.example", "/e/counter/a/add", true, true},
		{all, "https://evil.example", between + "Probe", false, true},
		{none, app, "/e/counter/a/add", false, false},
	} {
		ask := func(method string, headers ...string) *http.Response {
			r, err := http.NewRequest(method, c.site.url+c.path, strings.NewReader(`{"entityType":"counter","entityId":"a","command":"add","json":{"amount":1}}`))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(c.path, "/e/") {
				r.Body = http.NoBody
			}
			r.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			return res
		}
		before := ask(http.MethodOptions, "Origin", c.origin, "Sec-Fetch-Site", "cross-site", "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization,content-type,idempotency-key")
		if told := before.Header.Get("Access-Control-Allow-Origin") != ""; told != c.told {
			t.Errorf("%+v: a preflight request is answered with %d %v", c, before.StatusCode, before.Header)
		}
		res := ask(http.MethodPost, "Origin", c.origin, "Sec-Fetch-Site", "cross-site")
		if served := res.StatusCode != http.StatusForbidden; served != c.served {
			t.Errorf("%+v: %d", c, res.StatusCode)
		}
		if told := res.Header.Get("Access-Control-Allow-Origin") != ""; told != c.told {
			t.Errorf("%+v: %v", c, res.Header)
		}
	}
}
