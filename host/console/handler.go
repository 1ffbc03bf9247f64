package console

import (
	"bytes"
	"embed"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// Prefix is the prefix of all paths of the console.
const Prefix = "/console/"

// assets is the directory of files whose names contain their hash.
const assets = "assets/"

//go:embed all:dist
var dist embed.FS

// policy restricts the page to resources of its own origin, and forbids frames.
const policy = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Wrap serves the console below Prefix and redirects browsers from / to it. All
// other requests go to next. The console's files contain no data of the
// cluster, so they need no credential, and pages of other origins may link to
// them.
func Wrap(next http.Handler) http.Handler {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("console: " + err.Error()) // dist is a constant of this package
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, Prefix):
			serve(w, r, files)
		case r.URL.Path == "/" && asksForPage(r), r.URL.Path+"/" == Prefix:
			w.Header().Set("Vary", "Accept")
			http.Redirect(w, r, Prefix, http.StatusTemporaryRedirect)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// asksForPage reports whether a browser requests a page to display.
func asksForPage(r *http.Request) bool {
	return reads(r) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// serve responds with an asset, or with the page for any other path, because
// the page's script interprets the path.
func serve(w http.ResponseWriter, r *http.Request, files fs.FS) {
	if !reads(r) {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the console supports only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	if strings.HasPrefix(name, assets) {
		content, err := fs.ReadFile(files, path.Clean(name))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
		return
	}
	page, err := fs.ReadFile(files, "index.html")
	if err != nil {
		http.NotFound(w, r)
		return
	}
	h.Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "index.html", time.Time{}, bytes.NewReader(page))
}
