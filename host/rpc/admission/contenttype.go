package admission

import (
	"mime"
	"net/http"
)

// ContentTypes writes the content type of each request as the handlers of calls
// read it: media types are the same in any case (RFC 9110, section 8.3.1). What
// looks at a request before its handler would otherwise take a body for another
// one than the handler does, and charge or replace the wrong bytes.
func ContentTypes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header["Content-Type"]; len(given) > 0 && !canonicalType(given[0]) {
			if kind, parameters, err := mime.ParseMediaType(given[0]); err == nil {
				if written := mime.FormatMediaType(kind, parameters); written != given[0] {
					r = r.WithContext(r.Context()) // the header of a request is its sender's
					r.Header = r.Header.Clone()
					r.Header.Set("Content-Type", written)
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// canonicalType reports whether a content type is written as it is read, without
// parameters: most are.
func canonicalType(kind string) bool {
	for i := range len(kind) {
		if c := kind[i]; (c < 'a' || c > 'z') && c != '/' && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
