package console_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/hostd/hostd/host/console"
)

// maxBytes bounds the compressed size of the page.
const maxBytes = 120 << 10

func ask(t *testing.T, method, path string, header map[string]string) (*http.Response, string) {
	t.Helper()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "next") })
	r := httptest.NewRequest(method, path, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	console.Wrap(next).ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// TestPathsOfTheConsole: paths below /console/ are the page or its assets, and
// all other paths are passed on.
func TestPathsOfTheConsole(t *testing.T) {
	page := map[string]string{"Accept": "text/html,application/xhtml+xml"}
	for _, tt := range []struct {
		method, path string
		header       map[string]string
		status       int
		body         string
	}{
		{"GET", "/", page, http.StatusTemporaryRedirect, ""},
		{"GET", "/", nil, http.StatusOK, "next"},
		{"POST", "/", page, http.StatusOK, "next"},
		{"GET", "/livez", page, http.StatusOK, "next"},
		{"GET", "/console", nil, http.StatusTemporaryRedirect, ""},
		{"GET", "/console/", nil, http.StatusOK, "<div id=\"app\">"},
		{"GET", "/console/entities/cart/a%2Fb", nil, http.StatusOK, "<div id=\"app\">"},
		{"GET", "/console/", map[string]string{"Sec-Fetch-Site": "cross-site"}, http.StatusOK, "<div id=\"app\">"},
		{"GET", "/console/assets/nothing.js", nil, http.StatusNotFound, ""},
		{"GET", "/console/assets/../index.html", nil, http.StatusOK, "<div id=\"app\">"},
		{"POST", "/console/", nil, http.StatusMethodNotAllowed, ""},
	} {
		res, body := ask(t, tt.method, tt.path, tt.header)
		if res.StatusCode != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s: %d %.80s", tt.method, tt.path, res.StatusCode, body)
		}
		if res.StatusCode == http.StatusTemporaryRedirect && res.Header.Get("Location") != console.Prefix {
			t.Errorf("%s leads to %s", tt.path, res.Header.Get("Location"))
		}
	}
}

// TestPageKeepsToItsOrigin: a browser lets the page call only its own origin
// and no other page embed it, and caches hashed assets forever.
func TestPageKeepsToItsOrigin(t *testing.T) {
	res, page := ask(t, "GET", "/console/", nil)
	policy := res.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || res.Header.Get("X-Content-Type-Options") != "nosniff" || res.Header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%v", res.Header)
	}
	assets := regexp.MustCompile(`/console/assets/[a-z]+-[A-Z0-9]{8}\.(js|css)`).FindAllString(page, -1)
	if len(assets) != 2 {
		t.Fatalf("the page has the assets %q", assets)
	}
	var size bytes.Buffer
	for _, asset := range assets {
		res, text := ask(t, "GET", asset, nil)
		if res.StatusCode != http.StatusOK || !strings.Contains(res.Header.Get("Cache-Control"), "immutable") || res.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%s: %d %v", asset, res.StatusCode, res.Header)
		}
		w := gzip.NewWriter(&size)
		io.WriteString(w, text)
		w.Close()
		if strings.Contains(text, "sourceMappingURL") {
			t.Errorf("%s names a map of its sources", asset)
		}
	}
	if size.Len() > maxBytes {
		t.Errorf("the page has %d bytes, compressed; at most %d are meant", size.Len(), maxBytes)
	}
}
