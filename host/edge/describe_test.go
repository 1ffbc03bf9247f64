package edge_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/sharding/access"
)

// TestOpenAPIDocumentNeedsReadRights: a caller gets the OpenAPI document
// only with the right to list modules, or to read the named types, even if a
// different caller has just got the same document.
func TestOpenAPIDocumentNeedsReadRights(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "all", "one", "other", "none")
	g.begin(t)
	g.role(t, "all", access.Rule{Effect: access.Allow, Verbs: []string{access.Read}})
	g.role(t, "one", access.Rule{Effect: access.Allow, Verbs: []string{access.Read}, Types: []string{"uploaded"}})
	g.role(t, "other", reads())
	for _, name := range []string{"all", "one", "other"} {
		g.bind(t, "token:"+name, name)
	}
	if _, err := modulev1connect.NewModuleServiceClient(g.as("root"), g.url).UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm"), Activate: true})); err != nil {
		t.Fatal(err)
	}
	get := func(c *http.Client, path string) (int, string) {
		t.Helper()
		res, err := c.Get(g.url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	for path, may := range map[string][]string{"/openapi.json": {"root", "all"}, "/openapi.json?type=uploaded": {"root", "all", "one"}} {
		for _, as := range may {
			if code, text := get(g.as(as), path); code != http.StatusOK || !strings.Contains(text, `"openapi":"3.1.0"`) || !strings.Contains(text, "Entity type uploaded") {
				t.Errorf("%s as %s: %d %s", path, as, code, text)
			}
		}
		for _, as := range []string{"one", "other", "none"} {
			if as == "one" && len(may) == 3 {
				continue
			}
			if code, text := get(g.as(as), path); code != http.StatusForbidden || !strings.Contains(text, "ROLE_REQUIRED") || strings.Contains(text, "uploaded\"") {
				t.Errorf("%s as %s: %d %s", path, as, code, text)
			}
		}
		if code, text := get(http.DefaultClient, path); code != http.StatusForbidden { // these nodes accept anonymous callers, which have no role
			t.Errorf("%s without a credential: %d %s", path, code, text)
		}
	}
}
