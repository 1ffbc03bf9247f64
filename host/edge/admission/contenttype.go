package admission

import (
	"mime"
	"net/http"
)

// ContentTypes rewrites the content type of each request to the form that the
// RPC handlers compare with, because media types are case-insensitive (RFC 9110,
// section 8.3.1). Otherwise code that looks at a request before its handler
// could parse the body as a different format than the handler does, and charge
// or replace the wrong bytes.
func ContentTypes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header["Content-Type"]; len(given) > 0 && !canonicalType(given[0]) {
			if kind, parameters, err := mime.ParseMediaType(given[0]); err == nil {
				if written := mime.FormatMediaType(kind, parameters); written != given[0] {
					r = r.WithContext(r.Context()) // the original header must not be changed
					r.Header = r.Header.Clone()
					r.Header.Set("Content-Type", written)
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// canonicalType reports whether a content type is in canonical form and has no
// parameters, as most are.
func canonicalType(kind string) bool {
	for i := range len(kind) {
		if c := kind[i]; (c < 'a' || c > 'z') && c != '/' && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
